"""Public data sets onto this disk. No torch."""

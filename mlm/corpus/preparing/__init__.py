"""Raw text to token datasets: every core encodes, one process writes. No torch."""

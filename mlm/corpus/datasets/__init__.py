"""Token datasets looked at, verified, merged and split. No torch."""

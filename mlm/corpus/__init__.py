"""Text on its way to a token dataset: reading, cleaning, encoding, and looking at what came out. No torch."""

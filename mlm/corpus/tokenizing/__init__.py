"""Tokenizers trained on a user's own text. No torch."""

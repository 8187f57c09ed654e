"""Hugging Face: folders as transformers writes them, in and out."""

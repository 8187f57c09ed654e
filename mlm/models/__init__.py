"""Transformers, built from the layers of mlm.parallel."""

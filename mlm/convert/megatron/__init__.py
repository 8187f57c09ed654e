"""Megatron-LM's checkpoints in and out: a file per rank, their places, names and options."""

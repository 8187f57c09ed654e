"""Checkpoints as other programs want them, and whether a checkpoint is what it was when it was written."""

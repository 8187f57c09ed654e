"""Checkpoints in the logical layout: one global tensor per parameter, whatever the degrees were."""

"""Training: what the worker processes do. Composes models, data, optimizer and checkpoints."""

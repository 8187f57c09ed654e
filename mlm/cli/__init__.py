"""One small file per command."""

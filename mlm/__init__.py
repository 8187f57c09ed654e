"""mlm: train language models larger than one accelerator (Megatron-LM, arXiv 1909.08053)."""

__version__ = "0.1.0"

"""Number formats: what safetensors files and command lines call them."""

from __future__ import annotations

import torch

from mlm.checkpoint.storage import DTYPES as STORED
from mlm.errors import CheckpointError

DTYPES = STORED | {
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""By their names in safetensors files: those of our checkpoints, and what else others write."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What --dtype takes."""


def narrowed(tensor: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    """The tensor in that dtype. Raises CheckpointError when it holds values beyond what the dtype can."""
    found = tensor.to(dtype)
    if found.dtype != tensor.dtype and not found.isfinite().all() and tensor.isfinite().all():
        largest = tensor.abs().max().item()
        raise CheckpointError(f"{name} holds {largest:g}, beyond what fp16 can: use --dtype bf16 or fp32")
    return found

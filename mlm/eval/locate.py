"""Over how many ranks a checkpoint's model can be split; no torch."""

from __future__ import annotations

from functools import reduce
from math import gcd

from mlm.checkpoint.locate import Checkpoint, resolve_checkpoint
from mlm.config.checks import divisors
from mlm.config.names import alternatives
from mlm.config.schema import ModelConfig
from mlm.errors import Problem

__all__ = ["Checkpoint", "resolve_checkpoint", "tp_problems"]


def tp_problems(model: ModelConfig, tp: int) -> list[Problem]:
    """Why a checkpoint of this shape cannot be split over tp ranks; [] when it can."""
    sizes = {
        "heads": model.num_heads,
        "columns of the MLP": model.ffn_hidden_size or 4 * model.hidden_size,
        "rows of the vocabulary": model.padded_vocab_size or model.vocab_size,
    }
    indivisible = [f"{size:,} {name}" for name, size in sizes.items() if size % tp]
    if not indivisible:
        return []
    possible = alternatives([str(d) for d in divisors(reduce(gcd, sizes.values()))])
    wrong = f"does not divide the checkpoint's {' and '.join(indivisible)}"
    return [Problem(f"tp={tp}", wrong, f"use tp={possible}")]

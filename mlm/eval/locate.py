"""What a checkpoint tells without torch: over how many ranks it can be split, and its tokenizer."""

from __future__ import annotations

import json
from functools import reduce
from math import gcd

from mlm.checkpoint.locate import Checkpoint, resolve_checkpoint
from mlm.config.checks import divisors
from mlm.config.names import alternatives
from mlm.config.schema import ModelConfig
from mlm.data.tokenizers import Tokenizer, load_tokenizer
from mlm.errors import CheckpointError, Problem

__all__ = ["Checkpoint", "read_tokenizer", "resolve_checkpoint", "tp_problems"]


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


def read_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of the run; CheckpointError or DataError when it cannot be rebuilt."""
    path = checkpoint.data_path
    try:
        description = json.loads(path.read_text(encoding="utf-8"))["tokenizer"]
        return load_tokenizer(description, path.parent)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} does not describe a tokenizer ({type(error).__name__}: {error}): "
            f"put back the file that the run wrote"
        ) from error

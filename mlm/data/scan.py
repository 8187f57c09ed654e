"""One pass over a token dataset: that its index is sound, what ids occur, and a checksum of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mlm.data.indexed import IndexedDataset

# Tokens per step: large enough for numpy and the disk, small enough for memory.
STEP = 1 << 24
# From here a pass takes long enough (seconds to minutes) to say so.
LONG = 1 << 30


def scan(dataset: IndexedDataset, say: Callable[[str], None]) -> dict[str, Any]:
    """`least` and `greatest` id, their first positions `least_at` and `greatest_at`, and the `sha256`.

    Reads the whole .bin, about 1 GB/s from memory. Raises BadData when the index is not sound.
    """
    total = len(dataset.tokens)
    if total >= LONG:
        say(f"checking the ids of {total:,} tokens (once; the result is cached)")
    dataset.verify()
    seen: dict[str, Any] = {}
    checksum = hashlib.sha256()
    for start in range(0, total, STEP):
        tokens = np.ascontiguousarray(dataset.tokens[start : start + STEP])
        checksum.update(tokens.data)
        for name, at, better in (
            ("least", int(tokens.argmin()), int.__lt__),
            ("greatest", int(tokens.argmax()), int.__gt__),
        ):
            value = int(tokens[at])
            if name not in seen or better(value, seen[name]):
                seen[name], seen[name + "_at"] = value, start + at
    return {**seen, "sha256": checksum.hexdigest()}

"""One pass over a token dataset: that its index is sound, what ids occur, and a checksum of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mlm.data.cache import cache_key, cache_root, cached
from mlm.data.indexed import IndexedDataset, bin_path, idx_path
from mlm.errors import Problem

# Tokens per step: large enough for numpy and the disk, small enough for memory.
STEP = 1 << 24
# From here a pass takes long enough (seconds to minutes) to say so.
LONG = 1 << 30
# Part of the cache's key: raise it when a scan is to find something else.
FORMAT = 1


def scanned(dataset: IndexedDataset, cache_dir: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """`scan`, or its result from the cache while the two files have the size and time they had then."""
    files = [(str(file), file.stat()) for file in (bin_path(dataset.prefix), idx_path(dataset.prefix))]
    key = cache_key(format=FORMAT, files=[(name, stat.st_size, stat.st_mtime_ns) for name, stat in files])
    return cached(cache_root(cache_dir), key, lambda _: scan(dataset, say))[1]


def id_problems(where: str, seen: dict[str, Any], model_vocab_size: int) -> list[Problem]:
    """What `scan` saw that is no row of the model's vocabulary. where: how an error names the dataset."""
    if seen["least"] >= 0 and seen["greatest"] < model_vocab_size:
        return []
    which = "least" if seen["least"] < 0 else "greatest"
    return [
        Problem(
            where,
            f"holds token id {seen[which]:,} (at position {seen[which + '_at']:,}), "
            f"outside model.vocab_size={model_vocab_size}",
            f"use model.vocab_size={seen['greatest'] + 1} or more"
            if which == "greatest"
            else "prepare the data again",
        )
    ]


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

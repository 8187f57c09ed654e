"""PREFIX.idx from lists of lengths that may be larger than memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mlm.data.indexed import CHUNK, DTYPES, HEADER, MAGIC, VERSION
from mlm.errors import DataError


def write_index(path: Path, dtype: np.dtype[Any], lengths: Path, documents: Path) -> tuple[int, int]:
    """Write and sync an .idx; returns (documents, tokens).

    lengths: a file of int32, tokens per sequence; documents: a file of int32, sequences per document.
    """
    code = next(code for code, known in DTYPES.items() if known == dtype)
    sequences, count = lengths.stat().st_size // 4, documents.stat().st_size // 4
    with open(path, "wb") as idx, open(lengths, "rb") as of_sequences, open(documents, "rb") as of_documents:
        idx.write(HEADER.pack(MAGIC, VERSION, code, sequences, count + 1))
        while raw := of_sequences.read(4 * CHUNK):
            idx.write(raw)
        of_sequences.seek(0)
        tokens = _write_sums(idx, of_sequences, dtype.itemsize) // dtype.itemsize
        covered = _write_sums(idx, of_documents, 1)
        idx.write(covered.to_bytes(8, "little"))
        if covered != sequences:
            raise DataError(f"{path}: the documents hold {covered:,} sequences, not {sequences:,}")
        idx.flush()
        os.fsync(idx.fileno())
    return count, tokens


def _write_sums(idx: BinaryIO, values: BinaryIO, scale: int) -> int:
    """Write scale times the sum of all values before each one, as int64; returns that of all."""
    before = 0
    while raw := values.read(4 * CHUNK):
        # int64 before the product: int32 lengths times the item size wrap past 2 GiB.
        sizes = np.frombuffer(raw, dtype="<i4").astype("<i8") * scale
        ends = before + np.cumsum(sizes)
        idx.write((ends - sizes).astype("<i8").tobytes())
        before = int(ends[-1])
    return before

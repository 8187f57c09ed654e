"""Chunks: the neighbouring sentences of a document that one sample is made of.

The sentences of a document are packed from its first on: a chunk takes as many as fit `budget` tokens, and
two in any case, for a sample is two segments. Where one sentence is left at the end, it is put together with
the last one of the chunk before it (which keeps its own copy if it had no more than two). A document of a
single sentence gives no chunk. Where two sentences do not fit, the sample cuts them
(mlm.data.masked_lm.samples).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.indexed import IndexedDataset, idx_path

# Sentences per step of building: it bounds memory when there are 10^9 of them.
BLOCK = 1 << 20


@dataclass(frozen=True)
class ChunkCounts:
    """What came of the sentences. single: documents of one sentence, which give no chunk; cut: chunks of two
    sentences that do not fit; tokens: those of documents with chunks.
    """

    documents: int
    single: int
    chunks: int
    cut: int
    tokens: int


def build_chunks(
    dataset: IndexedDataset, borders: NDArray[np.int64], budget: int
) -> tuple[NDArray[np.int64], ChunkCounts]:
    """(first sentence, sentences) of each chunk, in the dataset's order.

    Shapes: [documents + 1] -> [chunks, 2].
    borders: the sentence with which each document begins, and the end of the last one; ascending.
    Raises BadData when a sentence is empty.
    """
    borders = borders[np.concatenate([[True], np.diff(borders) > 0])]  # documents without sentences go
    firsts = _firsts(dataset, borders, budget)
    stops = np.append(firsts[1:], borders[-1:])
    lone = stops - firsts == 1
    begins = np.isin(firsts, borders, assume_unique=True)
    single, left = lone & begins, np.flatnonzero(lone & ~begins)
    stops[left - 1] -= stops[left - 1] - firsts[left - 1] > 2
    firsts[left] -= 1
    kept = ~single
    chunks = np.stack([firsts, stops - firsts], axis=1)[kept]  # [chunks, 2]
    starts, ends = dataset.sequence_starts(firsts), dataset.sequence_starts(stops)
    whole = dataset.sequence_starts(borders[-1:])[0] - dataset.sequence_starts(borders[:1])[0]
    counts = ChunkCounts(
        documents=len(borders) - 1,
        single=int(single.sum()),
        chunks=len(chunks),
        cut=int((ends - starts > budget)[kept].sum()),
        tokens=int(whole - (ends - starts)[single].sum()),
    )
    return chunks, counts


def _firsts(dataset: IndexedDataset, borders: NDArray[np.int64], budget: int) -> NDArray[np.int64]:
    """The first sentence of each stretch that packing gives, of single sentences too. Shapes: [stretches]."""
    found: list[NDArray[np.int64]] = []
    at, stop = int(borders[0]), int(borders[-1])
    for begin in range(at, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        # Where the chunk that begins with a sentence ends is found for all sentences at once; which of them
        # begin one is then a walk from each to the next.
        after = _ends(dataset, borders, begin, end, budget).tolist()
        firsts: Sequence[int] = _walk(at, begin, end, after)
        at = after[firsts[-1] - begin] if firsts else at
        found.append(np.array(firsts, dtype=np.int64))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _walk(at: int, begin: int, end: int, after: Sequence[int]) -> list[int]:
    """The walk from `at` through after[at - begin] until `end`."""
    firsts = []
    while at < end:
        firsts.append(at)
        at = after[at - begin]
    return firsts


def _ends(
    dataset: IndexedDataset, borders: NDArray[np.int64], begin: int, end: int, budget: int
) -> NDArray[np.int64]:
    """Where a chunk that begins with each sentence of [begin, end) ends. Shapes: [end - begin]."""
    # A chunk has at most `budget` sentences, for each has a token: so far beyond the block one has to look.
    last = min(end + max(budget, 2), int(borders[-1]))
    starts = dataset.sequence_starts(np.arange(begin, last + 1))  # [last - begin + 1]
    empty = np.flatnonzero(np.diff(starts) <= 0)
    if len(empty):
        raise BadData(
            str(idx_path(dataset.prefix)),
            f"has no token in sequence {begin + int(empty[0]):,}, and objective=masked_lm needs sentences",
            "prepare it again without empty sentences",
        )
    sentences = np.arange(begin, end)
    fits = begin + np.searchsorted(starts, starts[: end - begin] + budget, side="right") - 1
    document_end = borders[np.searchsorted(borders, sentences, side="right")]
    return np.minimum(np.maximum(fits, sentences + 2), document_end)

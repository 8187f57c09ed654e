"""Near-duplicates among documents: candidates by locality-sensitive hashing, decided by exact similarity.

The rule, which depends on the order of the documents only: in that order, a document is dropped when its
Jaccard similarity with an earlier document that was kept is greater than the threshold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.cleaning.shingles import Hashes, jaccard
from mlm.corpus.cleaning.signatures import Bands

BYTES_PER_DOCUMENT = 96
"""Peak memory while documents are grouped, measured 90; the keys are on disk, 8 bytes a band."""

# Shingles of kept documents that later ones may be compared with; beyond it they are computed again.
_CACHE_BYTES = 256 << 20

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Duplicate:
    """A document that is dropped, the earlier one that is kept for it, and how similar they are."""

    document: int
    original: int
    similarity: float


class KeyFiles:
    """The keys of all documents on disk, one file a band, so that one band at a time is in memory."""

    def __init__(self, folder: Path, bands: Bands):
        self._paths = [folder / f"band_{band:03d}" for band in range(bands.count)]
        self._files = [open(path, "wb") for path in self._paths]  # noqa: SIM115 - closed by close

    def append(self, keys: NDArray[np.uint64]) -> None:
        """The keys of the next documents. Shapes: [documents, bands]."""
        for band, file in enumerate(self._files):
            file.write(keys[:, band].tobytes())

    def read(self) -> Iterator[NDArray[np.uint64]]:
        """The keys of all documents, band by band, each file removed after its use. Shapes: [documents]."""
        self.close()
        for path in self._paths:
            yield np.fromfile(path, dtype=np.uint64)
            path.unlink()

    def close(self) -> None:
        """Close every file. Raises OSError when the last of the keys does not fit on the disk."""
        with ExitStack() as stack:
            for file in self._files:
                stack.callback(file.close)


def copies(fingerprints: NDArray[np.void]) -> Indices:
    """For each document the first one with the same set of shingles, itself if it is the first.

    fingerprints: 16 bytes a document (signatures.fingerprint). Shapes: [documents] -> [documents].
    """
    halves = fingerprints.view(np.uint64).reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: equal ones stay in the order of documents
    ordered = halves[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    return first


def buckets(bands: Iterable[NDArray[np.uint64]], chosen: Indices) -> tuple[Indices, Indices]:
    """Which of the chosen documents share a bucket with another: pairs (document, bucket), by document.

    Shapes: 2 x [pairs]. Buckets of different bands have different numbers.
    """
    documents, numbers, used = [], [], 0
    for keys in bands:
        keys = keys[chosen]
        order = np.argsort(keys, kind="stable")
        if not len(order):
            continue
        same = keys[order[1:]] == keys[order[:-1]]
        shared = np.concatenate([[False], same]) | np.concatenate([same, [False]])
        begins = np.concatenate([[True], ~same])[shared]
        documents.append(chosen[order[shared]])
        numbers.append(np.cumsum(begins) - 1 + used)
        used += int(np.count_nonzero(begins))
    if not documents:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    every, bucket = np.concatenate(documents), np.concatenate(numbers)
    order = np.argsort(every, kind="stable")
    return every[order], bucket[order]


def near_duplicates(
    documents: Indices,
    bucket: Indices,
    sizes: NDArray[np.uint32],
    threshold: float,
    shingles: Callable[[Indices], Iterator[Hashes]],
) -> Iterator[Duplicate]:
    """The documents to drop, in order, among those that share buckets.

    documents, bucket: as `buckets` gives them; sizes: of each document's set of shingles; shingles: their
    sets, for documents in any order, one after the other.
    """
    if not len(documents):
        return
    kept: dict[int, list[int]] = {}
    known = _Cache(shingles)
    different, starts = np.unique(documents, return_index=True)
    stops = [*starts[1:].tolist(), len(documents)]
    numbers = (bucket[a:b].tolist() for a, b in zip(starts.tolist(), stops, strict=True))
    for document, mine, in_buckets in zip(different.tolist(), shingles(different), numbers, strict=True):
        earlier = sorted({other for number in in_buckets for other in kept.get(number, ())})
        found = _first_similar(earlier, mine, sizes, threshold, known)
        if found is not None:
            yield Duplicate(document, *found)
            continue
        known.put(document, mine)
        for number in in_buckets:
            kept.setdefault(number, []).append(document)


def _first_similar(
    earlier: list[int], mine: Hashes, sizes: NDArray[np.uint32], threshold: float, known: _Cache
) -> tuple[int, float] | None:
    for other in earlier:
        small, large = sorted((len(mine), int(sizes[other])))
        # The similarity of two sets is at most the ratio of their sizes.
        if small > threshold * large:
            similarity = jaccard(mine, known.get(other))
            if similarity > threshold:
                return other, similarity
    return None


class _Cache:
    """Sets of shingles by document, the ones used last."""

    def __init__(self, compute: Callable[[Indices], Iterator[Hashes]]):
        self._compute = compute
        self._sets: OrderedDict[int, Hashes] = OrderedDict()
        self._bytes = 0

    def put(self, document: int, hashes: Hashes) -> None:
        self._sets[document] = hashes
        self._bytes += hashes.nbytes
        while self._bytes > _CACHE_BYTES and len(self._sets) > 1:
            self._bytes -= self._sets.popitem(last=False)[1].nbytes

    def get(self, document: int) -> Hashes:
        if document not in self._sets:
            self.put(document, next(self._compute(np.asarray([document]))))
        self._sets.move_to_end(document)
        return self._sets[document]

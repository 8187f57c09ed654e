"""Documents laid end to end in an order of their own for every epoch; nothing is stored but a thin index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.indexed import IndexedDataset
from mlm.data.order import ROUNDS, epoch_keys, permute

# The index of an epoch has an entry for so many documents, two bytes each; a sample looks at a few groups.
GROUP = 4
# Documents per step of building it: large enough for numpy, small enough for the processor's cache.
CHUNK = 1 << 14
# From here on fewer rounds mix well enough, and a billion documents want to be gone through.
LARGE, LARGE_ROUNDS = 1 << 16, 8
# A batch at the border of two epochs needs both.
EPOCHS_KEPT = 2


@dataclass(frozen=True)
class Runs:
    """Stretches of the token file that make up what was asked for, in order. Shapes: all [runs].

    sample: the request it belongs to; offset: its place in that; start: its first token's place in the file;
    length; document_start: where in the request its document begins, negative when before it.
    """

    sample: NDArray[np.int64]
    offset: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    document_start: NDArray[np.int64]

    def read_tokens(self, file: NDArray[Any], into: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Write the tokens of request r to row rows[r]. Shapes: file [tokens], into [n, at least length]."""
        flat, places = into.reshape(-1), rows[self.sample] * into.shape[1] + self.offset
        for place, start, size in zip(
            places.tolist(), self.start.tolist(), self.length.tolist(), strict=True
        ):
            flat[place : place + size] = file[start : start + size]

    def read_document_starts(self, into: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Write to row rows[r], for each token, the place in the request at which its document begins there.

        0 where it began earlier. Shapes: into [n, at least length].
        """
        flat, places = into.reshape(-1), rows[self.sample] * into.shape[1] + self.offset
        begun = np.maximum(self.document_start, 0).tolist()
        for place, size, at in zip(places.tolist(), self.length.tolist(), begun, strict=True):
            flat[place : place + size] = at


class DocumentStream:
    """The tokens of documents [first, stop) of a dataset, permuted anew in every epoch.

    Which document stands at which place is computed from (seed, epoch, place). What has to be looked up is
    where a place begins: an index with one int64 for every GROUP documents, made when an epoch is first
    asked for (0.1 s for a million documents) and not kept on disk, so there is nothing to share among
    processes, to wait for or to go stale. shuffle=False: in the file's order.
    """

    def __init__(self, dataset: IndexedDataset, first: int, stop: int, seed: int, *, shuffle: bool):
        self.dataset, self.first, self.documents = dataset, first, stop - first
        self.seed, self.shuffle = seed, shuffle
        self.tokens = dataset.document_start(stop) - dataset.document_start(first)
        self._group_starts: dict[int, NDArray[np.int64]] = {}

    def runs(self, epoch: int, start: NDArray[np.int64], length: int) -> Runs:
        """Tokens [start, start + length) of an epoch's stream, for each start in [0, tokens). Shapes: [n].

        What lies past the end of the stream is left out.
        """
        groups = self.group_starts(epoch)
        first = np.searchsorted(groups, start, side="right") - 1  # [n], of group numbers
        last = np.searchsorted(groups, start + length - 1, side="right") - 1
        # Every document of the groups that a request touches: place, then the document that stands there.
        sizes = (last - first + 1) * GROUP
        sample = np.repeat(np.arange(len(start)), sizes)  # [places]
        before = np.cumsum(sizes) - sizes
        places = np.arange(len(sample)) - np.repeat(before - first * GROUP, sizes)
        exists = places < self.documents
        sample, places = sample[exists], places[exists]
        starts, lengths = self._spans(epoch, places)
        # Where each stands in the stream: the group's start and the documents before it.
        ends = np.cumsum(lengths)
        firsts = np.searchsorted(sample, np.arange(len(start)))  # of each request
        at = ends - lengths - (ends - lengths)[firsts][sample] + groups[first][sample]
        # The part of it that was asked for.
        low = np.maximum(at, start[sample])
        high = np.minimum(at + lengths, start[sample] + length)
        asked = high > low
        sample, low, at = sample[asked], low[asked], at[asked]
        begins = start[sample]
        return Runs(sample, low - begins, starts[asked] + low - at, high[asked] - low, at - begins)

    def group_starts(self, epoch: int) -> NDArray[np.int64]:
        """Where each group of GROUP documents begins in an epoch's stream, and its end. [groups + 1]."""
        epoch = epoch if self.shuffle else 0
        if epoch not in self._group_starts:
            while len(self._group_starts) >= EPOCHS_KEPT:
                del self._group_starts[min(self._group_starts)]
            self._group_starts[epoch] = self._build(epoch)
        return self._group_starts[epoch]

    def _build(self, epoch: int) -> NDArray[np.int64]:
        starts = np.zeros(-(-self.documents // GROUP) + 1, dtype=np.int64)
        for first in range(0, self.documents, CHUNK):
            places = np.arange(first, min(first + CHUNK, self.documents))
            _, lengths = self._spans(epoch, places)
            sums = np.add.reduceat(lengths, np.arange(0, len(lengths), GROUP))
            starts[first // GROUP + 1 :][: len(sums)] = sums
        np.cumsum(starts, out=starts)
        return starts

    def _spans(self, epoch: int, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(position in the token file, length) of the documents at these places. Shapes: [n] -> 2 x [n]."""
        documents = places
        if self.shuffle:
            key = epoch_keys(np.array([epoch]), "document order", self.seed)
            rounds = ROUNDS if self.documents < LARGE else LARGE_ROUNDS
            documents = permute(places, np.broadcast_to(key, places.shape), self.documents, rounds)
        documents = documents + self.first
        starts = self.dataset.document_starts(documents)
        return starts, self.dataset.document_starts(documents + 1) - starts

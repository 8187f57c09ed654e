"""Windows of seq_length + 1 tokens: shuffled and endless for training, in order and once for validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from mlm.data.bad_data import BadData
from mlm.data.blend import Blend
from mlm.data.documents import DocumentStream
from mlm.data.order import SampleOrder


def samples_per_epoch(tokens: int, seq_length: int) -> int:
    """Training samples one pass over `tokens` gives: windows that fit wherever an epoch begins to cut."""
    return max(1, (tokens - seq_length) // seq_length) if tokens > seq_length else 0


def validation_samples(tokens: int, seq_length: int) -> int:
    """Windows that score each of `tokens` but the first once; the last may be short."""
    return -(-(tokens - 1) // seq_length) if tokens > 1 else 0


class Samples(Protocol):
    """Training samples by number, endless and reproducible: seq_length + 1 tokens each."""

    def batch(self, sample_numbers: ArrayLike) -> NDArray[np.int64]:
        """The tokens of the samples. Shapes: [n] -> [n, seq_length + 1]."""

    def packed(self, sample_numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens, and for each input the place in its sample where its document begins there.

        Shapes: [n] -> [n, seq_length + 1], [n, seq_length].
        """


class TokenWindows:
    """Training samples: window number n of an endless, reproducible order over tokens[start:stop].

    A sample is seq_length + 1 neighbouring tokens: the inputs and, one further, the targets. In an epoch
    the windows share no target. What they do not fill, fewer than 2*seq_length tokens, is left out at the
    beginning and the end, in each epoch differently divided, so that epochs cut the text at other places
    and every token is seen in some.
    Raises BadData when the range has fewer than seq_length + 1 tokens.
    """

    def __init__(self, tokens: NDArray[Any], start: int, stop: int, seq_length: int, seed: int):
        _check_length(stop - start, seq_length)
        self.tokens, self.start, self.seq_length = tokens, start, seq_length
        self.order = _window_order(stop - start, seq_length, seed)
        self.samples_per_epoch = self.order.windows
        self._windows = sliding_window_view(tokens, seq_length + 1)  # [tokens - seq_length, seq_length + 1]

    def batch(self, sample_numbers: ArrayLike) -> NDArray[np.int64]:
        """As Samples.batch."""
        _, window, offset = self.order.locate(np.asarray(sample_numbers, dtype=np.int64))
        return self._windows[self.start + offset + window * self.seq_length].astype(np.int64)

    def packed(self, sample_numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As Samples.packed; the whole range is one document."""
        ids = self.batch(sample_numbers)
        return ids, np.zeros((len(ids), self.seq_length), dtype=np.int64)


class DocumentWindows:
    """Training samples: the same windows over a stream of documents that every epoch shuffles anew."""

    def __init__(self, documents: DocumentStream, seq_length: int, seed: int):
        """Raises BadData when the documents have fewer than seq_length + 1 tokens."""
        _check_length(documents.tokens, seq_length)
        self.documents, self.seq_length = documents, seq_length
        self.order = _window_order(documents.tokens, seq_length, seed)
        self.samples_per_epoch = self.order.windows

    def batch(self, sample_numbers: ArrayLike) -> NDArray[np.int64]:
        """As Samples.batch."""
        return self._read(sample_numbers, starts=False)[0]

    def packed(self, sample_numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As Samples.packed."""
        ids, starts = self._read(sample_numbers, starts=True)
        return ids, starts[:, :-1]

    def _read(
        self, sample_numbers: ArrayLike, *, starts: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        epochs, window, offset = self.order.locate(np.asarray(sample_numbers, dtype=np.int64))
        first = offset + window * self.seq_length  # [n], in the stream of the sample's epoch
        length = self.seq_length + 1
        ids = np.empty((len(first), length), dtype=np.int64)
        begun = np.zeros_like(ids) if starts else ids
        for epoch in np.unique(epochs).tolist():
            of_epoch = np.flatnonzero(epochs == epoch)
            runs = self.documents.runs(epoch, first[of_epoch], length)
            runs.read_tokens(self.documents.dataset.tokens, ids, of_epoch)
            if starts:
                runs.read_document_starts(begun, of_epoch)
        return ids, begun


class BlendedWindows:
    """Training samples of several datasets by weight; a dataset's own samples come in its own order."""

    def __init__(self, blend: Blend, datasets: Sequence[Samples | None]):
        """datasets: one for each weight; None is allowed where the weight is 0."""
        self.blend, self.datasets = blend, datasets

    def batch(self, sample_numbers: ArrayLike) -> NDArray[np.int64]:
        """As Samples.batch."""
        (ids,) = self._collect(sample_numbers, lambda dataset, numbers: (dataset.batch(numbers),))
        return ids

    def packed(self, sample_numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As Samples.packed."""
        ids, starts = self._collect(sample_numbers, lambda dataset, numbers: dataset.packed(numbers))
        return ids, starts

    def _collect(
        self,
        sample_numbers: ArrayLike,
        read: Callable[[Samples, NDArray[np.int64]], tuple[NDArray[np.int64], ...]],
    ) -> list[NDArray[np.int64]]:
        of_dataset, inner = self.blend.locate(sample_numbers)
        collected: list[NDArray[np.int64]] = []
        for index in np.unique(of_dataset).tolist():
            dataset = self.datasets[index]
            assert dataset is not None, "a dataset without weight is never drawn"
            places = np.flatnonzero(of_dataset == index)
            found = read(dataset, inner[places])
            if not collected:
                collected = [np.empty((len(inner), part.shape[1]), dtype=np.int64) for part in found]
            for whole, part in zip(collected, found, strict=True):
                whole[places] = part
        return collected


class ValidationWindows:
    """Validation samples: tokens[start:stop] in order, each token but the first a target exactly once.

    documents: the same range as documents in the file's order; None: it is one document.
    Raises BadData when the range has fewer than seq_length + 1 tokens.
    """

    def __init__(
        self,
        tokens: NDArray[Any],
        start: int,
        stop: int,
        seq_length: int,
        documents: DocumentStream | None = None,
    ):
        _check_length(stop - start, seq_length)
        self.tokens, self.start, self.stop, self.seq_length = tokens, start, stop, seq_length
        self.documents = documents

    def __len__(self) -> int:
        return validation_samples(self.stop - self.start, self.seq_length)

    def batch(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(tokens, mask): the mask is true where a target counts. Shapes: [n] -> [n, s+1], [n, s].

        Past the end of the range tokens repeat its last one, unscored. A number at or past len(self)
        gives a window of which nothing is scored, so that ranks can take equal shares.
        """
        first = self.start + np.asarray(numbers, dtype=np.int64) * self.seq_length  # [n]
        at = first[:, None] + np.arange(self.seq_length + 1)  # [n, s+1]
        tokens = self.tokens[np.minimum(at, self.stop - 1)].astype(np.int64)
        return tokens, at[:, 1:] < self.stop

    def document_starts(self, numbers: ArrayLike) -> NDArray[np.int64]:
        """For each input, the place in its window where its document begins there. Shapes: [n] -> [n, s]."""
        first = np.asarray(numbers, dtype=np.int64) * self.seq_length  # [n]
        starts = np.zeros((len(first), self.seq_length), dtype=np.int64)
        exists = np.flatnonzero(first < self.stop - self.start)
        if self.documents is not None and len(exists):
            self.documents.runs(0, first[exists], self.seq_length).read_document_starts(starts, exists)
        return starts


def _window_order(tokens: int, seq_length: int, seed: int) -> SampleOrder:
    windows = samples_per_epoch(tokens, seq_length)
    slack = tokens - 1 - windows * seq_length
    return SampleOrder(windows, slack + 1, seed)


def _check_length(tokens: int, seq_length: int) -> None:
    if tokens < seq_length + 1:
        raise BadData(
            f"a split of {tokens:,} tokens",
            f"is shorter than one sample, seq_length + 1 = {seq_length + 1:,}",
            "lower model.seq_length, or give the split more text",
        )

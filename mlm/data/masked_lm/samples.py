"""Samples of BERT's pre-training: two segments, masked words, and which of the segments came first.

A sample is [CLS] A [SEP] B [SEP], filled up with [PAD]. A chunk's sentences are cut at a random sentence
border into two segments, and with probability 1/2 these stand in swapped order. Where a chunk of two
sentences is longer than seq_length - 3 tokens, the longer one is shortened until both fit, and then both
alike. What a segment loses is divided at random between its beginning and its end, and of an odd number the
last token falls to either at random: where a segment is cut, and how long it is, must not tell its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlm.data.blend import Blend
from mlm.data.indexed import IndexedDataset
from mlm.data.masked_lm.draws import below, draw, sample_keys
from mlm.data.masked_lm.masking import Masking
from mlm.data.order import SampleOrder

# [CLS], [SEP] and [SEP].
CONTROLS = 3
# Draws of a sample before those of its masking: where the chunk is cut, whether the segments are swapped, and
# of two that are shortened, which gets an odd token and how much each loses at its beginning.
CUT, SWAP, ODD, LOST, MASKING = 0, 1, 2, 3, 5


@dataclass(frozen=True)
class MaskedBatch:
    """Samples as a model takes them; s is seq_length, K the most tokens that any sample has masked."""

    ids: NDArray[np.int64]
    """[n, s]: what the model sees."""
    segments: NDArray[np.int64]
    """[n, s]: 0 up to the first [SEP], 1 up to the second, 0 beyond."""
    real: NDArray[np.bool_]
    """[n, s]: false where [PAD] stands."""
    masked_at: NDArray[np.int64]
    """[n, K]: places to predict, ascending; 0 where unused."""
    masked_ids: NDArray[np.int64]
    """[n, K]: the tokens that stood there; 0 where unused."""
    masked_weights: NDArray[np.float64]
    """[n, K]: 1, or 0 where unused."""
    swapped: NDArray[np.int64]
    """[n]: 1 where the segment that comes second in the text stands first."""
    order_weights: NDArray[np.float64]
    """[n]: 1, or 0 for a number past the end of a validation."""

    def __len__(self) -> int:
        return len(self.ids)


class MaskedSamples(Protocol):
    """Training samples by number, endless and reproducible; len() is those of an epoch."""

    def __len__(self) -> int: ...

    def batch(self, numbers: ArrayLike) -> MaskedBatch:
        """The samples of these numbers. Shapes: [n]. Raises ValueError below 0."""


class ChunkSamples:
    """Training samples of one dataset: an epoch takes each chunk once, and cuts and masks it anew.

    chunks: as build_chunks gives them, at least one.
    """

    def __init__(self, dataset: IndexedDataset, chunks: NDArray[np.int64], masking: Masking, seed: int):
        self._pairs = _Pairs(dataset, chunks, masking)
        self.order, self.seed = SampleOrder(len(chunks), 1, seed), seed

    def __len__(self) -> int:
        return self.order.windows

    def batch(self, numbers: ArrayLike) -> MaskedBatch:
        """As MaskedSamples.batch."""
        numbers = np.asarray(numbers, dtype=np.int64)
        _, chunk, _ = self.order.locate(numbers)
        return self._pairs.batch(chunk, sample_keys(numbers, "masked sample", self.seed))


class MaskedValidation:
    """Validation samples: each chunk once, in the text's order, cut and masked the same way in every run."""

    def __init__(self, dataset: IndexedDataset, chunks: NDArray[np.int64], masking: Masking):
        self._pairs = _Pairs(dataset, chunks, masking)

    def __len__(self) -> int:
        return len(self._pairs.chunks)

    def batch(self, numbers: ArrayLike) -> MaskedBatch:
        """The samples of these numbers. Shapes: [n].

        A number at or past len(self) gives the last sample with every weight 0, so that ranks can take equal
        shares.
        """
        numbers = np.asarray(numbers, dtype=np.int64)
        exists = numbers < len(self)
        chunk = np.minimum(numbers, len(self) - 1)
        batch = self._pairs.batch(chunk, sample_keys(chunk, "masked validation", 0))
        batch.masked_weights[~exists] = 0.0
        batch.order_weights[~exists] = 0.0
        return batch


class BlendedMasked:
    """Training samples of several datasets by weight; a dataset's own samples come in its own order."""

    def __init__(self, blend: Blend, datasets: Sequence[MaskedSamples | None]):
        """datasets: one for each weight; None is allowed where the weight is 0."""
        self.blend, self.datasets = blend, datasets

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets if dataset is not None)

    def batch(self, numbers: ArrayLike) -> MaskedBatch:
        """As MaskedSamples.batch."""
        of_dataset, inner = self.blend.locate(numbers)
        places = [np.flatnonzero(of_dataset == index) for index in range(len(self.datasets))]
        found = []
        for dataset, at in zip(self.datasets, places, strict=True):
            if len(at):
                assert dataset is not None, "a dataset without weight is never drawn"
                found.append(dataset.batch(inner[at]))
        back = np.argsort(np.concatenate(places))
        return MaskedBatch(
            **{
                field.name: np.concatenate([getattr(batch, field.name) for batch in found])[back]
                for field in fields(MaskedBatch)
            }
        )


class _Pairs:
    """From a chunk and a key to a sample."""

    def __init__(self, dataset: IndexedDataset, chunks: NDArray[np.int64], masking: Masking):
        self.dataset, self.chunks, self.masking = dataset, chunks, masking

    def batch(self, chunk: NDArray[np.int64], keys: NDArray[np.uint64]) -> MaskedBatch:
        """Shapes: [n], [n]."""
        seq_length, vocabulary = self.masking.seq_length, self.masking.vocabulary
        first, sentences = self.chunks[chunk].T  # [n], [n]
        cut = first + 1 + below(draw(keys, CUT, 1)[:, 0], sentences - 1)
        begin, border, end = (
            self.dataset.sequence_starts(sentence) for sentence in (first, cut, first + sentences)
        )
        whole = border - begin, end - border
        odd = below(draw(keys, ODD, 1)[:, 0], 2)
        before, after = fitting(*whole, seq_length - CONTROLS, odd)
        lost = draw(keys, LOST, 2)
        begin = begin + below(lost[:, 0], whole[0] - before + 1)
        border = border + below(lost[:, 1], whole[1] - after + 1)

        swapped = below(draw(keys, SWAP, 1)[:, 0], 2)
        turned = swapped == 1
        a_start, a = np.where(turned, border, begin), np.where(turned, after, before)
        b_start, b = np.where(turned, begin, border), np.where(turned, before, after)

        places = np.arange(seq_length)  # [s]
        first_sep, last_sep = (a + 1)[:, None], (a + b + 2)[:, None]  # [n, 1]
        in_b = places > first_sep  # [n, s]
        text = (places > 0) & (places < last_sep) & (places != first_sep)
        source = np.where(in_b, (b_start - a - 2)[:, None], (a_start - 1)[:, None]) + places
        ids = np.full(text.shape, vocabulary.pad, dtype=np.int64)
        ids[text] = self.dataset.tokens[source[text]]
        ids[:, 0] = vocabulary.cls
        rows = np.arange(len(ids))
        ids[rows, a + 1] = ids[rows, a + b + 2] = vocabulary.sep
        real = places <= last_sep

        masked = self.masking(ids, keys, MASKING)
        return MaskedBatch(
            ids=masked.ids,
            segments=(in_b & real).astype(np.int64),
            real=real,
            masked_at=masked.at,
            masked_ids=masked.targets,
            masked_weights=masked.weights,
            swapped=swapped,
            order_weights=np.ones(len(ids)),
        )


def fitting(
    first: NDArray[np.int64], second: NDArray[np.int64], budget: int, odd: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths of two segments when the longer one is shortened, token by token, until both fit `budget`.

    odd: 1 where, of two that are both too long for an odd budget, the first keeps the token more; 0 where the
    second does. Shapes: [n], [n], [n] -> [n], [n].
    """
    half = budget // 2 + budget % 2 * odd  # [n], of the first
    new_first = np.where(first <= second, np.minimum(first, half), budget - np.minimum(second, budget - half))
    fits = first + second <= budget
    new_first = np.where(fits, first, new_first)
    return new_first, np.where(fits, second, budget - new_first)

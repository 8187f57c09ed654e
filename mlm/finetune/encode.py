"""Texts to [CLS] A [SEP] B [SEP]: what is cut when they are too long, and how sequences make a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer

Ids = NDArray[np.int32]

PAD_MULTIPLE = 8
"""Batches are as wide as their longest sequence, rounded up to this: few widths, and even ones."""


@dataclass(frozen=True)
class Controls:
    """The control tokens that sequences are made of."""

    cls: int
    sep: int
    pad: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Controls:
        """Raises BadData naming those that the tokenizer lacks."""
        missing = [name for name in ("cls", "sep", "pad") if name not in tokenizer.special]
        if missing:
            raise BadData(
                f"the tokenizer ({tokenizer.name})",
                f"has no {' and no '.join(f'[{name.upper()}]' for name in missing)}",
                "use BERT's (tokenizer=wordpiece, or that of init_from)",
            )
        special = tokenizer.special
        return cls(special["cls"], special["sep"], special["pad"])


@dataclass(frozen=True)
class PairSequence:
    """[CLS] A [SEP] B [SEP]: ids, and where B begins; segment 1 is B and the [SEP] behind it."""

    ids: Ids
    second_at: int


def pair_sequence(first: Ids, second: Ids, controls: Controls) -> PairSequence:
    """Shapes: [a], [b] -> [a + b + 3]."""
    ids = np.empty(len(first) + len(second) + 3, dtype=np.int32)
    second_at = len(first) + 2
    ids[0], ids[second_at - 1], ids[-1] = controls.cls, controls.sep, controls.sep
    ids[1 : second_at - 1], ids[second_at:-1] = first, second
    return PairSequence(ids, second_at)


def cut_longer_first(first: Ids, second: Ids, room: int) -> tuple[Ids, Ids]:
    """Both with at most `room` ids together: the longer loses ids at its end until they are equally long."""
    if len(first) + len(second) <= room:
        return first, second
    half = room // 2
    if len(second) <= half:
        return first[: room - len(second)], second
    if len(first) <= room - half:
        return first, second[: room - len(first)]
    return first[: room - half], second[:half]


@dataclass(frozen=True)
class Batch:
    """Sequences side by side. Shapes: [n, seq] each.

    ids: filled up with [PAD]; segments: 0 or 1; real: false where it is filled up.
    """

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    real: NDArray[np.bool_]


@dataclass(frozen=True)
class LabelledBatch:
    """Samples and what is right for each. sequences: one or more of a sample, together.

    targets: [samples] numbers of options or classes, or [samples, 2] first and last position of an answer.
    answerable: of spans, where one may begin or end, [samples, seq]; None elsewhere.
    """

    sequences: Batch
    targets: NDArray[np.int64]
    answerable: NDArray[np.bool_] | None = None

    @property
    def inputs(self) -> tuple[NDArray[np.int64] | NDArray[np.bool_], ...]:
        """What a model's scores() takes."""
        parts = (self.sequences.ids, self.sequences.segments, self.sequences.real)
        return parts if self.answerable is None else (*parts, self.answerable)


def collate(sequences: Sequence[PairSequence], pad: int, limit: int) -> Batch:
    """One batch; limit: the widest that the model reads."""
    longest = max(len(sequence.ids) for sequence in sequences)
    width = min(limit, -(-longest // PAD_MULTIPLE) * PAD_MULTIPLE)
    ids = np.full((len(sequences), width), pad, dtype=np.int64)
    segments = np.zeros_like(ids)
    real = np.zeros(ids.shape, dtype=np.bool_)
    for row, sequence in enumerate(sequences):
        length = len(sequence.ids)
        ids[row, :length] = sequence.ids
        segments[row, sequence.second_at : length] = 1
        real[row, :length] = True
    return Batch(ids, segments, real)

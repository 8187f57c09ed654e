"""data.split: where a text or a token dataset is cut into train, valid and test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from mlm.data.indexed import IndexedDataset
from mlm.errors import Problem

NAMES = ("train", "valid", "test")


@dataclass(frozen=True)
class Part:
    """One split: tokens [start, stop) of the flat stream, and how many documents they are (part of).

    first_document: number of the first of them; None where the split was not made by documents.
    """

    name: str
    start: int
    stop: int
    documents: int
    first_document: int | None = None

    @property
    def tokens(self) -> int:
        return self.stop - self.start


def split_problem(split: Sequence[float]) -> Problem | None:
    """What is wrong with data.split: it takes 1 to 3 finite numbers, none negative, train above zero."""
    where, remedy = f"data.split={_show(split)}", "use three shares such as [969,30,1] or [90,10,0]"
    if not 1 <= len(split) <= len(NAMES):
        return Problem(where, f"has {len(split)} numbers, not 1 to 3 (train, valid, test)", remedy)
    bad = [value for value in split if not math.isfinite(value) or value < 0]
    if bad:
        return Problem(where, f"contains {bad[0]:g}, which is no share", remedy)
    if split[0] == 0:
        return Problem(where, "gives the training split nothing", remedy)
    return None


def shares(split: Sequence[float]) -> list[Fraction]:
    """Cumulative ends of train, valid and test as exact fractions of the whole; missing shares are 0.

    Fractions of the decimals that were typed: 0.9 and 90 then cut at the same place.
    """
    parts = [Fraction(repr(float(value))) for value in split] + [Fraction(0)] * (len(NAMES) - len(split))
    return [sum(parts[: i + 1], Fraction(0)) / sum(parts) for i in range(len(NAMES))]


def cut(total: int, split: Sequence[float]) -> list[int]:
    """Ends of train, valid and test in [0, total], rounded down (nanoGPT's int(0.9 * total))."""
    return [math.floor(end * total) for end in shares(split)]


def split_dataset(
    dataset: IndexedDataset, split: Sequence[float], *, by_sentence: bool = False
) -> list[Part]:
    """Cut at document boundaries, rounded to the nearest; a dataset of one document is cut by tokens.

    by_sentence: one document is cut at the beginnings of its sequences instead, rounded to the nearest.
    """
    documents = dataset.num_documents
    if documents == 1:
        ends = [0, *cut(len(dataset.tokens), split)]
        if by_sentence:
            at = [0, *(round(end * len(dataset)) for end in shares(split))]
            ends = dataset.sequence_starts(np.array(at)).tolist()
        counts = [int(stop > start) for start, stop in pairwise(ends)]
        firsts: list[int | None] = [None] * len(NAMES)
    else:
        at = [0, *(round(end * documents) for end in shares(split))]
        ends = [dataset.document_start(document) for document in at]
        counts = [stop - start for start, stop in pairwise(at)]
        firsts = [*at[:-1]]
    return [Part(name, ends[i], ends[i + 1], counts[i], firsts[i]) for i, name in enumerate(NAMES)]


def parts_problem(
    parts: Sequence[Part],
    split: Sequence[float],
    seq_length: int,
    dataset: IndexedDataset | None = None,
    of: str = "",
) -> Problem | None:
    """The first split that is asked for and has not one sample; test is not read in training.

    Train is always asked for, valid when its share is above zero. dataset: what was split by documents;
    of: its name where there are several.
    """
    for part, share in zip(parts[:2], (1.0, *split[1:2]), strict=False):
        if share > 0 and part.tokens < seq_length + 1:
            holds = f"leaves {part.documents:,} documents, {part.tokens:,} tokens, to {part.name}{of}"
            if part.tokens:
                holds += f", and one sample takes {seq_length + 1:,}"
            return Problem(f"data.split={_show(split)}", holds, _remedy(parts, seq_length, dataset))
    return None


def _remedy(parts: Sequence[Part], seq_length: int, dataset: IndexedDataset | None) -> str:
    """The split nearest to none that gives validation a sample, or else the greatest seq_length."""
    if dataset is not None and dataset.num_documents > 1:
        last = dataset.num_documents
        for held_out in range(1, min(last, 1000)):
            boundary = dataset.document_start(last - held_out)
            if len(dataset.tokens) - boundary > seq_length and boundary > seq_length:
                return f"use data.split=[{last - held_out},{held_out},0]; [1,0,0] trains without validation"
    shortest = min((part.tokens for part in parts[:2] if part.tokens), default=0)
    lower = f"use model.seq_length={shortest - 1:,} or less, or " if shortest > 1 else "use "
    return lower + "more text, or other shares"


def _show(split: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:g}" for value in split) + "]"

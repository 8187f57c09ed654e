"""From prepared data to the samples that a worker reads: one dataset or a blend, packed or not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mlm.data.blend import Blend
from mlm.data.documents import DocumentStream
from mlm.data.indexed import IndexedDataset
from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.data.samples import BlendedWindows, DocumentWindows, Samples, TokenWindows, ValidationWindows

S = TypeVar("S")


@dataclass(frozen=True)
class ValidationSet:
    """The validation split of one dataset. weight: its part of the mean loss; those of a run sum to 1."""

    name: str
    weight: float
    windows: ValidationWindows


def training_samples(data: PreparedData, seed: int, *, shuffle_documents: bool, packed: bool) -> Samples:
    """The training samples of a run. packed: `Samples.packed` is going to be asked for."""

    def of_one(dataset: PreparedDataset, own_seed: int) -> Samples:
        return samples_of(
            dataset, data.seq_length, own_seed, shuffle_documents=shuffle_documents, packed=packed
        )

    return of_all(data, seed, of_one, BlendedWindows)


def of_all(
    data: PreparedData,
    seed: int,
    of_one: Callable[[PreparedDataset, int], S],
    blended: Callable[[Blend, list[S | None]], S],
) -> S:
    """The training samples of a run's datasets, each with its own seed: of the only one, or of their blend.

    of_one(dataset, its seed); blended(blend, samples by dataset, None where its weight is 0).
    """
    samples = [
        of_one(dataset, _seed(seed, index, data)) if dataset.weight else None
        for index, dataset in enumerate(data.datasets)
    ]
    (only, *others) = samples
    if not others:
        assert only is not None, "the only dataset has weight 1"
        return only
    return blended(data.blend, samples)


def validation_sets(data: PreparedData, *, packed: bool) -> list[ValidationSet]:
    """The validation splits that there are, in the order of the datasets."""
    used = [dataset for dataset in data.datasets if dataset.tokens["valid"] > data.seq_length]
    weights = sum(dataset.weight for dataset in used)
    return [
        ValidationSet(dataset.name, dataset.weight / weights, _validation(dataset, data.seq_length, packed))
        for dataset in used
    ]


def prompt_ids(data: PreparedData, tokens: int = 8) -> NDArray[np.int64]:
    """The first tokens of the first validation split there is, or else of the training split."""
    dataset = next((d for d in data.datasets if d.tokens["valid"] > data.seq_length), None)
    name = "valid" if dataset else "train"
    dataset = dataset or next(d for d in data.datasets if d.weight)
    start = dataset.ranges[name][0]
    return IndexedDataset(dataset.prefix).tokens[start : start + tokens].astype(np.int64)


def samples_of(
    dataset: PreparedDataset, seq_length: int, seed: int, *, shuffle_documents: bool, packed: bool
) -> Samples:
    """The training samples of one dataset."""
    opened = IndexedDataset(dataset.prefix)
    first, count = dataset.first_documents["train"], dataset.documents["train"]
    if first is None or count < 2 or not (shuffle_documents or packed):
        return TokenWindows(opened.tokens, *dataset.ranges["train"], seq_length, seed)
    documents = DocumentStream(opened, first, first + count, seed, shuffle=shuffle_documents)
    return DocumentWindows(documents, seq_length, seed)


def _validation(dataset: PreparedDataset, seq_length: int, packed: bool) -> ValidationWindows:
    opened = IndexedDataset(dataset.prefix)
    first, count = dataset.first_documents["valid"], dataset.documents["valid"]
    documents = None
    if packed and first is not None:
        documents = DocumentStream(opened, first, first + count, 0, shuffle=False)
    return ValidationWindows(opened.tokens, *dataset.ranges["valid"], seq_length, documents)


def _seed(seed: int, index: int, data: PreparedData) -> int:
    """A seed of its own for each dataset of a blend: two that are equal do not come in step."""
    if len(data.datasets) == 1:
        return seed
    return int.from_bytes(hashlib.sha256(f"dataset {index} of {seed}".encode()).digest()[:8], "little")

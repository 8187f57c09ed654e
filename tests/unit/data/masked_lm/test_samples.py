"""Samples: what a pair must be whatever its documents, and that it depends on its number alone."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from mlm.data.blend import Blend
from mlm.data.indexed import IndexedDataset
from mlm.data.masked_lm.chunks import build_chunks
from mlm.data.masked_lm.masking import Masking
from mlm.data.masked_lm.samples import BlendedMasked, ChunkSamples, MaskedBatch, MaskedValidation, fitting
from tests.unit.data.masked_lm.sentences import CLS, MASK, PAD, PAPER, SEP, dataset, vocabulary

S = 32


def samples_of(data: IndexedDataset, seed: int = 5, seq_length: int = S) -> ChunkSamples:
    chunks, _ = build_chunks(data, data.document_index, seq_length - 3)
    return ChunkSamples(data, chunks, Masking(vocabulary(), PAPER, seq_length), seed)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> IndexedDataset:
    """200 documents of 1 to 9 sentences of 1 to 40 tokens: alone, in pairs, far too long."""
    rng = np.random.default_rng(3)
    documents = [rng.integers(1, rng.choice([3, 12, 41]), rng.integers(1, 10)).tolist() for _ in range(200)]
    return dataset(tmp_path_factory.mktemp("data"), documents)


def segments_of(batch: MaskedBatch, row: int) -> tuple[list[int], list[int]]:
    """A and B as they were before masking, checking the frame around them."""
    ids, real = batch.ids[row].copy(), batch.real[row]
    used = batch.masked_weights[row] == 1
    ids[batch.masked_at[row][used]] = batch.masked_ids[row][used]
    length = int(real.sum())
    assert real.tolist() == [True] * length + [False] * (S - length)
    assert ids[0] == CLS
    assert ids[length - 1] == SEP
    assert (ids[length:] == PAD).all()
    inner = ids[1 : length - 1].tolist()
    assert CLS not in inner
    assert MASK not in inner
    assert PAD not in inner
    assert inner.count(SEP) == 1
    at = inner.index(SEP)
    assert batch.segments[row].tolist() == [0] * (at + 2) + [1] * (length - at - 2) + [0] * (S - length)
    return inner[:at], inner[at + 1 :]


def test_segments_are_neighbours_in_one_document_cut_at_a_sentence(data: IndexedDataset):
    samples = samples_of(data)
    batch = samples.batch(np.arange(2 * len(samples)))
    tokens = data.tokens.tolist()
    starts = set((np.cumsum(data.lengths) - data.lengths).tolist())
    documents = data.document_starts(np.arange(data.num_documents + 1))
    lengths = set()
    for row in range(len(batch)):
        a, b = segments_of(batch, row)
        first, second = (b, a) if batch.swapped[row] else (a, b)
        assert first
        assert second
        lengths.add(len(first) + len(second))
        places = [at for at in starts if tokens[at - len(first) : at + len(second)] == first + second]
        whole = [
            at for at in places
            if np.searchsorted(documents, at - len(first), side="right")
            == np.searchsorted(documents, at + len(second) - 1, side="right")
        ]  # fmt: skip
        assert whole, f"sample {row}: {first} | {second}"
    assert max(lengths) == S - 3


def test_an_epoch_takes_each_pair_once_and_the_next_cuts_and_masks_it_anew(data: IndexedDataset):
    samples = samples_of(data)
    number = len(samples)
    epochs = [samples.batch(np.arange(number) + epoch * number) for epoch in range(2)]
    chunks = [samples.order.locate(np.arange(number) + epoch * number)[1] for epoch in range(2)]
    assert (np.sort(chunks[0]) == np.arange(number)).all()
    assert (chunks[0] != chunks[1]).any()
    of_chunk = [np.argsort(order) for order in chunks]
    same = [
        np.mean([np.array_equal(x, y) for x, y in zip(one[of_chunk[0]], two[of_chunk[1]], strict=True)])
        for one, two in (
            (getattr(epochs[0], name), getattr(epochs[1], name))
            for name in ("masked_at", "swapped", "segments")
        )
    ]
    assert same[0] < 0.2
    assert 0.4 < same[1] < 0.6
    assert same[2] < 0.6
    other = samples_of(data, seed=6).batch(np.arange(number))
    assert (other.ids != epochs[0].ids).any(axis=1).mean() > 0.9


def test_a_sample_is_a_function_of_its_number(data: IndexedDataset):
    samples, again = samples_of(data), samples_of(data)
    numbers = np.array([900_000_000_000, 3, 17, 3, 0])
    together = samples.batch(numbers)
    for row, number in enumerate(numbers.tolist()):
        alone = again.batch([number])
        for field in fields(MaskedBatch):
            assert (getattr(alone, field.name)[0] == getattr(together, field.name)[row]).all(), field.name
    with pytest.raises(ValueError, match="negative"):
        samples.batch([-1])


def test_validation_is_the_same_whenever_asked_and_scores_nothing_past_its_end(data: IndexedDataset):
    chunks, _ = build_chunks(data, data.document_index, S - 3)
    valid = MaskedValidation(data, chunks, Masking(vocabulary(), PAPER, S))
    assert len(valid) == len(chunks)
    batch, again = valid.batch(np.arange(len(valid) + 3)), valid.batch([7])
    assert (batch.ids[7] == again.ids[0]).all()
    assert (batch.masked_weights[:-3].sum(axis=1) >= 1).all()
    assert batch.order_weights.tolist() == [1.0] * len(valid) + [0.0] * 3
    assert not batch.masked_weights[-3:].any()
    assert batch.real[-3:].any(axis=1).all()


def test_documents_of_two_words_give_a_masked_token_each_and_of_one_word_none(tmp_path: Path):
    samples = samples_of(dataset(tmp_path, [[1, 1], [1], [2, 1], [1]]), seq_length=8)
    assert len(samples) == 2
    batch = samples.batch(np.arange(200))
    assert (batch.masked_weights == 1).all()
    assert batch.masked_weights.shape == (200, 1)


def test_a_blend_takes_each_datasets_own_samples(data: IndexedDataset):
    parts = [samples_of(data, seed) for seed in (5, 6)]
    blend = Blend([1, 0, 3])
    blended = BlendedMasked(blend, [parts[0], None, parts[1]])
    assert len(blended) == len(parts[0]) + len(parts[1])
    numbers = np.arange(50)
    batch = blended.batch(numbers)
    for row, (which, inner) in enumerate(zip(*blend.locate(numbers), strict=True)):
        alone = parts[which // 2].batch([inner])
        for field in fields(MaskedBatch):
            assert (getattr(batch, field.name)[row] == getattr(alone, field.name)[0]).all(), field.name


def test_the_longer_segment_is_shortened_token_by_token():
    for budget in (2, 7, 10):
        pairs = [(a, b) for a in range(1, 15) for b in range(1, 15)]
        found = fitting(*np.array(pairs).T, budget)
        for (a, b), got in zip(pairs, zip(*(part.tolist() for part in found), strict=True), strict=True):
            while a + b > budget:
                a, b = (a - 1, b) if a > b else (a, b - 1)
            assert got == (a, b)

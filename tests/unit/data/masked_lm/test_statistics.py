"""10^5 samples against the definition: rates, n-gram lengths, replacements and order within 3 sigma."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlm.data.masked_lm.chunks import build_chunks
from mlm.data.masked_lm.draws import sample_keys
from mlm.data.masked_lm.masking import Masking
from mlm.data.masked_lm.samples import MASKING, ChunkSamples, MaskedBatch
from tests.unit.data.masked_lm.sentences import MASK, PAPER, UNK, dataset, vocabulary

SAMPLES, S, SEED = 100_000, 32, 11


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> ChunkSamples:
    rng = np.random.default_rng(4)
    data = dataset(tmp_path_factory.mktemp("data"), [rng.integers(3, 9, 8).tolist() for _ in range(500)])
    chunks, _ = build_chunks(data, data.document_index, S - 3)
    return ChunkSamples(data, chunks, Masking(vocabulary(), PAPER, S), SEED)


@pytest.fixture(scope="module")
def batch(samples: ChunkSamples) -> MaskedBatch:
    return samples.batch(np.arange(SAMPLES))


@pytest.fixture(scope="module")
def before(batch: MaskedBatch) -> np.ndarray:
    """The samples as they were before masking."""
    ids = batch.ids.copy()
    row, slot = np.nonzero(batch.masked_weights)
    ids[row, batch.masked_at[row, slot]] = batch.masked_ids[row, slot]
    return ids


def within_three_sigma(found: int, of: int, p: float) -> None:
    sigma = math.sqrt(of * p * (1 - p))
    assert abs(found - of * p) < 3 * sigma, f"{found / of:.5f} of {of:,}, not {p:.5f} +- {3 * sigma / of:.5f}"


def test_fifteen_percent_of_each_sample_are_masked_unless_no_word_left_fits(
    samples: ChunkSamples, batch: MaskedBatch, before: np.ndarray
):
    text = before > UNK
    target = np.maximum(1, np.floor(0.15 * text.sum(axis=1) + 0.5))
    count = batch.masked_weights.sum(axis=1)
    assert (count <= target).all()
    assert (count >= 1).all()
    # Where it is less, each unmasked word has more tokens than were left.
    words = samples._pairs.masking.words(before, text)
    masked = np.zeros_like(text)
    row, slot = np.nonzero(batch.masked_weights)
    masked[row, batch.masked_at[row, slot]] = True
    free = ~masked[words.row, words.column]
    assert (words.size[free] > (target - count)[words.row[free]]).all()
    assert (
        abs(target.sum() / text.sum() - 0.15) < 0.004
    )  # what rounding leaves, samples being of 5 to 29 tokens
    assert count.sum() / target.sum() > 0.99


def test_words_are_masked_whole(batch: MaskedBatch, before: np.ndarray):
    masked = np.zeros(before.shape, dtype=bool)
    row, slot = np.nonzero(batch.masked_weights)
    masked[row, batch.masked_at[row, slot]] = True
    text = before > UNK
    continues = np.zeros_like(text)
    continues[:, 1:] = (before[:, 1:] >= 65) & text[:, :-1]
    word = np.cumsum(text & ~continues)[:, None].reshape(before.shape)[text]  # of each token, from 1
    size, hidden = np.bincount(word), np.bincount(word, weights=masked[text])
    torn = (hidden > 0) & (hidden < size)
    # The one exception: a word of more tokens than its sample may have masked.
    target = np.maximum(1, np.floor(0.15 * text.sum(axis=1) + 0.5))
    of_sample = np.zeros(len(size))
    of_sample[word] = np.broadcast_to(target[:, None], text.shape)[text]
    assert hidden.sum() == batch.masked_weights.sum()
    assert (size[torn] > of_sample[torn]).all()
    assert torn.sum() < 0.05 * (hidden > 0).sum()


def test_ngrams_are_drawn_in_proportion_to_one_over_n(samples: ChunkSamples, before: np.ndarray):
    masking = samples._pairs.masking
    words = masking.words(before, before > UNK)
    ngrams = masking.ngrams(words, sample_keys(np.arange(SAMPLES), "masked sample", SEED), MASKING)
    # Whether another is drawn depends on those before alone: by Wald's identity the counts are as of so many
    # independent draws.
    for n, p in ((1, 6 / 11), (2, 3 / 11), (3, 2 / 11)):
        within_three_sigma(int((ngrams.drawn == n).sum()), len(ngrams.drawn), p)
    assert (ngrams.words <= ngrams.drawn).all()
    assert (ngrams.words >= 1).all()


def test_masked_tokens_are_hidden_replaced_and_kept_as_80_10_10(batch: MaskedBatch):
    row, slot = np.nonzero(batch.masked_weights)
    shown, was = batch.ids[row, batch.masked_at[row, slot]], batch.masked_ids[row, slot]
    ordinary = 95
    within_three_sigma(int((shown == MASK).sum()), len(shown), 0.8)
    within_three_sigma(int((shown == was).sum()), len(shown), 0.1 + 0.1 / ordinary)
    other = shown[(shown != MASK) & (shown != was)]
    assert other.min() == 5
    drawn = np.bincount(other, minlength=100)[5:]
    # Every ordinary token alike: chi-square has mean 94 and variance 2 * 94, but for those that stood there.
    expected = 0.1 / ordinary * (len(was) - np.bincount(was, minlength=100)[5:])
    chi_square = ((drawn - expected) ** 2 / expected).sum()
    assert abs(chi_square - 95) < 3 * math.sqrt(2 * 95), chi_square


def test_half_of_the_samples_are_swapped_and_every_sentence_border_is_as_likely(
    samples: ChunkSamples, batch: MaskedBatch
):
    within_three_sigma(int(batch.swapped.sum()), SAMPLES, 0.5)
    # Of chunks of three sentences, the cut is after the first in half of the samples.
    _, chunk, _ = samples.order.locate(np.arange(SAMPLES))
    first, sentences = samples._pairs.chunks[chunk].T
    data = samples._pairs.dataset
    length = batch.segments.sum(axis=1)  # of the second segment and its [SEP]
    total = batch.real.sum(axis=1)
    begins = np.where(batch.swapped == 1, length - 1, total - length - 2)
    three = sentences == 3
    after_first = begins[three] == data.lengths[first[three]]
    within_three_sigma(int(after_first.sum()), int(three.sum()), 0.5)

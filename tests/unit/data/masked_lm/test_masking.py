"""Masking: the words chosen are those of the rule, done by hand for each sample with the same draws."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mlm.data.masked_lm import masking as module
from mlm.data.masked_lm.draws import draw, sample_keys, unit
from mlm.data.masked_lm.masking import Masking, predictions
from tests.unit.data.masked_lm.sentences import CLS, PAD, PAPER, SEP, UNK, sentence, vocabulary

S = 64


def rows(number: int, seed: int = 0, least: int = 1) -> np.ndarray:
    """Samples [CLS] A [SEP] B [SEP] [PAD]... of random lengths, an [UNK] here and there."""
    rng = np.random.default_rng(seed)
    ids = np.full((number, S), PAD, dtype=np.int64)
    for row in ids:
        a, b = rng.integers(least, (S - 3) // 2, 2)
        row[: a + b + 3] = [CLS, *sentence(rng, a), SEP, *sentence(rng, b), SEP]
        row[(rng.random(S) < 0.02) & (row > UNK)] = UNK
    return ids


def by_hand(ids: list[int], order: list[int], drawn: list[int], rule: SimpleNamespace) -> list[int]:
    """The places masked in one sample. order, drawn: by place, used where a word begins."""
    text = [token > UNK for token in ids]
    budget = max(1, int(rule.mask_rate * sum(text) + 0.5))
    words: list[list[int]] = []
    for at, token in enumerate(ids):
        if not text[at]:
            continue
        goes_on = token >= 65 and text[at - 1] and len(words[-1]) < min(budget, 16)
        words[-1].append(at) if goes_on else words.append([at])
    masked: list[int] = []
    for word in sorted(words, key=lambda word: order[word[0]]):
        number = words.index(word)
        for following in words[number : number + drawn[word[0]]]:
            beside = following is word or following[0] == masked[-1] + 1
            if not beside or following[0] in masked or len(masked) + len(following) > budget:
                break
            masked += following
    return sorted(masked)


@pytest.mark.parametrize(
    "rule", [PAPER, SimpleNamespace(**{**vars(PAPER), "mask_rate": 0.5, "max_ngram": 7})]
)
def test_masked_words_are_those_chosen_by_hand(rule: SimpleNamespace):
    ids, keys = rows(400), sample_keys(np.arange(400), "test", 7)
    masked = Masking(vocabulary(), rule, S)(ids, keys, 2)
    order = draw(keys, 2, S)
    shares = np.array([1 / n for n in range(1, rule.max_ngram + 1)])
    limits = np.cumsum(shares) / shares.sum()
    drawn = 1 + (unit(draw(keys, 2 + S, S))[:, :, None] >= limits[:-1]).sum(axis=2)
    for row in range(len(ids)):
        expected = by_hand(ids[row].tolist(), order[row].tolist(), drawn[row].tolist(), rule)
        used = masked.weights[row] == 1
        assert masked.at[row][used].tolist() == expected, f"sample {row}: {ids[row].tolist()}"
        assert masked.targets[row][used].tolist() == ids[row][expected].tolist()
        assert not masked.at[row][~used].any()
        elsewhere = np.delete(np.arange(S), expected)
        assert (masked.ids[row][elsewhere] == ids[row][elsewhere]).all()


def test_a_sample_does_not_depend_on_the_others_of_its_batch():
    ids, keys = rows(70), sample_keys(np.arange(70), "test", 7)
    masking = Masking(vocabulary(), PAPER, S)
    together = masking(ids, keys, 2)
    for row in (0, 31, 69):
        alone = masking(ids[row : row + 1], keys[row : row + 1], 2)
        for name in ("ids", "at", "targets", "weights"):
            assert (getattr(alone, name)[0] == getattr(together, name)[row]).all(), (row, name)


def test_the_smallest_samples_have_exactly_one_token_masked_and_unknown_words_none():
    ids = np.array(
        [
            [CLS, 7, SEP, 8, SEP, PAD, PAD, PAD],
            [CLS, 7, 70, 71, SEP, 8, 72, SEP],
            [CLS, UNK, SEP, UNK, SEP, PAD, PAD, PAD],
        ]
    )
    keys = sample_keys(np.arange(3), "test", 7)
    masked = Masking(vocabulary(), PAPER, 8)(ids, keys, 2)
    assert masked.weights.tolist() == [[1.0], [1.0], [0.0]]
    assert masked.ids[2].tolist() == ids[2].tolist()


def test_a_line_without_word_borders_is_masked_in_stretches():
    ids = np.array([[CLS, 7, *[70] * 58, SEP, 8, 9, SEP]])
    masking = Masking(vocabulary(), PAPER, S)
    words = masking.words(ids, ids > UNK)
    assert words.size.max() == predictions(61, 0.15) == 9
    wide = Masking(vocabulary(), SimpleNamespace(**{**vars(PAPER), "mask_rate": 0.9}), S)
    assert wide.words(ids, ids > UNK).size.max() == module.LONGEST_WORD


@pytest.mark.parametrize(("tokens", "expected"), [(1, 1), (3, 1), (9, 1), (10, 2), (125, 19), (509, 76)])
def test_fifteen_percent_are_rounded_to_the_nearest_and_at_least_one(tokens: int, expected: int):
    assert predictions(tokens, 0.15) == expected
    assert expected == max(1, int((15 * tokens + 50) // 100))

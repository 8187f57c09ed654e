"""Which tokens of a sample are to be predicted, and what the model sees in their place.

With m tokens of text in a sample, control tokens not counted, T = max(1, round(mask_rate * m)) are masked:

1. All words of the sample are put into a random order.
2. In that order, each word that is not masked yet and has no more tokens than are left to mask begins an
   n-gram: n from 1 to max_ngram is drawn with p(n) proportional to 1/n, and the word and the n - 1 after it
   are masked. The n-gram ends earlier where its segment does, where the next word is masked already, and
   where the next word would take the sample beyond T. A word that does not fit is passed over.
3. It ends when T tokens are masked, or when no word is left that fits.

So never more than T tokens are masked, T exactly unless all words that remain are too long, and only whole
words. One exception keeps the promise of at least one token: a word of more than T tokens, or of more than
LONGEST_WORD (a line of writing without spaces), counts as several words of that length.

Each masked token by itself becomes [MASK] (mask_share), any ordinary token of the vocabulary (random_share),
or stays as it is; in all three cases it is to be predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mlm.data.masked_lm.draws import below, draw, unit
from mlm.data.masked_lm.vocabulary import Vocabulary

LONGEST_WORD = 16


class MaskingRule(Protocol):
    """The numbers of the objective's configuration that decide masking."""

    @property
    def mask_rate(self) -> float: ...
    @property
    def max_ngram(self) -> int: ...
    @property
    def mask_share(self) -> float: ...
    @property
    def random_share(self) -> float: ...


@dataclass(frozen=True)
class Words:
    """The words of several samples, end to end. Shapes: all [words] but `of_token` and `budget`.

    row: the sample; size: tokens; run_stop: number of the word after the last one of its segment;
    of_token: the word of each token of text, end to end; budget: T of each sample.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    size: NDArray[np.int64]
    run_stop: NDArray[np.int64]
    of_token: NDArray[np.int64]
    budget: NDArray[np.int64]


@dataclass(frozen=True)
class Ngrams:
    """Chosen n-grams. first: number of its first word; drawn: n; words: how many it came to have.

    Shapes: all [ngrams].
    """

    first: NDArray[np.int64]
    drawn: NDArray[np.int64]
    words: NDArray[np.int64]


@dataclass(frozen=True)
class Masked:
    """Masked samples. Shapes: ids [n, s]; at, targets, weights [n, K], the last 1, or 0 where unused."""

    ids: NDArray[np.int64]
    at: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float64]


def predictions(tokens: int, mask_rate: float) -> int:
    """T of a sample with so many tokens of text; of the longest sample, K."""
    return max(1, math.floor(mask_rate * tokens + 0.5))


class Masking:
    """Masks samples of s tokens, of which s - 3 at most are text; K = predictions(s - 3, mask_rate)."""

    def __init__(self, vocabulary: Vocabulary, rule: MaskingRule, seq_length: int):
        self.vocabulary, self.rule, self.seq_length = vocabulary, rule, seq_length
        self.predictions = predictions(seq_length - 3, rule.mask_rate)
        shares = 1 / np.arange(1, rule.max_ngram + 1)
        self._up_to = np.cumsum(shares / shares.sum())[:-1]  # P(n <= 1), P(n <= 2), ...

    def __call__(self, ids: NDArray[np.int64], keys: NDArray[np.uint64], first: int) -> Masked:
        """Mask samples. keys, first: of `draw`. Shapes: [n, s], [n]; ids are left as they are."""
        text = ~self.vocabulary.control[ids]  # [n, s]
        words = self.words(ids, text)
        chosen = np.zeros(len(words.size), dtype=bool)
        ngrams = self.ngrams(words, keys, first)
        offsets = np.arange(ngrams.words.sum()) - np.repeat(
            np.cumsum(ngrams.words) - ngrams.words, ngrams.words
        )
        chosen[np.repeat(ngrams.first, ngrams.words) + offsets] = True

        masked = np.zeros_like(text)
        masked[text] = chosen[words.of_token]
        row, column = np.nonzero(masked)
        count = masked.sum(axis=1)
        slot = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        shape = (len(ids), self.predictions)
        at, targets = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        weights = np.zeros(shape)
        at[row, slot], targets[row, slot], weights[row, slot] = column, ids[row, column], 1.0
        seen = ids.copy()
        seen[row, column] = self._replaced(targets, keys, first + 2 * self.seq_length)[row, slot]
        return Masked(seen, at, targets, weights)

    def words(self, ids: NDArray[np.int64], text: NDArray[np.bool_]) -> Words:
        """The words of samples. text: what is no control token. Shapes: [n, s], [n, s]."""
        budget = np.maximum(1, np.floor(self.rule.mask_rate * text.sum(axis=1) + 0.5)).astype(np.int64)
        follows = np.zeros_like(text)
        follows[:, 1:] = text[:, 1:] & text[:, :-1]
        begins = text & (self.vocabulary.starts_word[ids] | ~follows)
        places = np.arange(ids.shape[1])
        begun = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
        begins |= text & ((places - begun) % np.minimum(budget, LONGEST_WORD)[:, None] == 0)

        row, column = np.nonzero(begins)
        of_token = np.cumsum(begins[text]) - 1
        size = np.bincount(of_token, minlength=len(row))
        last = np.append(~follows[row[1:], column[1:]], True)[: len(row)]  # of its segment
        ends = np.flatnonzero(last) + 1
        run_stop = ends[np.cumsum(last) - last]
        return Words(row, column, size, run_stop, of_token, budget)

    def ngrams(self, words: Words, keys: NDArray[np.uint64], first: int) -> Ngrams:
        """The n-grams to mask, in the order in which they were chosen."""
        row, column = words.row, words.column
        order_bits = draw(keys, first, self.seq_length)[row, column]
        # One number to sort by: the sample, then its draw.
        bits = np.uint64(max(1, (len(keys) - 1).bit_length()))
        order = np.argsort(row.astype(np.uint64) << (np.uint64(64) - bits) | order_bits >> bits)
        n_bits = draw(keys, first + self.seq_length, self.seq_length)[row, column]
        drawn = 1 + np.searchsorted(self._up_to, unit(n_bits), side="right")

        size, waiting = words.size.tolist(), order.tolist()
        stops = np.minimum(np.arange(len(row)) + drawn, words.run_stop).tolist()
        taken = bytearray(len(row) + 1)
        firsts: list[int] = []
        counts: list[int] = []
        begin = 0
        for words_of_row, left in zip(
            np.bincount(row, minlength=len(keys)).tolist(), words.budget.tolist(), strict=True
        ):
            for word in waiting[begin : begin + words_of_row]:
                if taken[word] or size[word] > left:
                    continue
                at, stop = word, stops[word]
                while at < stop and not taken[at] and size[at] <= left:
                    taken[at] = 1
                    left -= size[at]
                    at += 1
                firsts.append(word)
                counts.append(at - word)
                if not left:
                    break
            begin += words_of_row
        chosen = np.array(firsts, dtype=np.int64)
        return Ngrams(chosen, drawn[chosen], np.array(counts, dtype=np.int64))

    def _replaced(
        self, targets: NDArray[np.int64], keys: NDArray[np.uint64], first: int
    ) -> NDArray[np.int64]:
        """What the model sees in the place of each target. Shapes: [n, K] -> [n, K]."""
        fate = unit(draw(keys, first, self.predictions))
        ordinary = self.vocabulary.ordinary
        other = ordinary[below(draw(keys, first + self.predictions, self.predictions), len(ordinary))]
        shown = np.where(fate < self.rule.mask_share + self.rule.random_share, other, targets)
        return np.where(fate < self.rule.mask_share, self.vocabulary.mask, shown)

"""Entropies of a text: what a model that knows only counts of neighbouring characters would lose."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mlm.data.tokenizers import code_points

# Of a longer text, its beginning: sorting the trigrams of 10^9 characters would take minutes.
CHARACTERS = 1 << 25
# Counting into a table is ten times faster than sorting while the table fits a cache.
TABLE = 1 << 22


def text_entropies(text: str) -> dict[str, float]:
    """Nats per character: `alphabet` (ln of its size), `unigram`, `bigram`, `trigram`.

    bigram is H(c2 | c1) and trigram H(c3 | c1 c2), from the text's own counts.
    """
    # Ids as they come out of np.unique are dense, so three of them fit one 64-bit number for any text.
    alphabet, characters = np.unique(code_points(text[:CHARACTERS]), return_inverse=True)
    size = len(alphabet)
    blocks, entropies = characters.astype(np.int64), []
    for n in (1, 2, 3):
        if n > 1:
            blocks = blocks[:-1] * size + characters[n - 1 :]
        entropies.append(_entropy(blocks, size**n))
    unigram, pairs, triples = entropies
    return {
        "alphabet": math.log(size),
        "unigram": unigram,
        "bigram": pairs - unigram,
        "trigram": triples - pairs,
    }


def _entropy(symbols: NDArray[np.int64], size: int) -> float:
    """-sum p ln p over the symbols that occur, each in [0, size)."""
    if not len(symbols):
        return 0.0
    counts = np.bincount(symbols) if size <= TABLE else np.unique(symbols, return_counts=True)[1]
    p = counts[counts > 0] / len(symbols)
    return float(-(p * np.log(p)).sum())

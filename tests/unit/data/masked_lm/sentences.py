"""Datasets of sentences with known words, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.data.masked_lm.vocabulary import Vocabulary, word_starts

# 5 control tokens, 60 that begin words, 35 that continue them.
CLS, SEP, MASK, PAD, UNK = range(5)
SIZE, FIRST_CONTINUING = 100, 65
PIECES = [
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[PAD]",
    "[UNK]",
    *(f"w{i}" for i in range(60)),
    *(f"##c{i}" for i in range(35)),
]
PAPER = SimpleNamespace(mask_rate=0.15, max_ngram=3, mask_share=0.8, random_share=0.1)


def vocabulary() -> Vocabulary:
    control = np.arange(SIZE) < 5
    return Vocabulary(CLS, SEP, MASK, PAD, control, word_starts(PIECES), np.flatnonzero(~control))


def sentence(rng: np.random.Generator, tokens: int) -> np.ndarray:
    """Random words of one to a few tokens, two thirds of them of one."""
    ids = rng.integers(5, FIRST_CONTINUING, tokens)
    continues = rng.random(tokens) < 1 / 3
    continues[0] = False
    ids[continues] = rng.integers(FIRST_CONTINUING, SIZE, int(continues.sum()))
    return ids


def dataset(folder: Path, documents: Sequence[Sequence[int]], seed: int = 0) -> IndexedDataset:
    """Documents given by the tokens of their sentences."""
    rng = np.random.default_rng(seed)
    with IndexedWriter(folder / "sentences", SIZE) as writer:
        for lengths in documents:
            writer.add_sentences([sentence(rng, tokens) for tokens in lengths])
    return IndexedDataset(folder / "sentences")

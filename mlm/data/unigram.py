"""What the frequencies of tokens alone tell: the baseline of predictions that look at nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlm.data.indexed import IndexedDataset
from mlm.data.prepared import PreparedDataset

MOST_TOKENS = 1 << 22
"""That are counted: of a longer text, as many in stretches spread evenly over it."""
_STRETCHES = 64


def unigram(dataset: PreparedDataset, ordinary: NDArray[np.int64], vocab_size: int) -> NDArray[np.float64]:
    """ln of each token's frequency in the training split, one added to each count. Shapes: [vocab_size].

    ordinary: the ids that count; the others get -inf.
    """
    start, stop = dataset.ranges["train"]
    tokens = IndexedDataset(dataset.prefix).tokens
    counts = np.zeros(vocab_size, dtype=np.int64)
    if stop - start <= MOST_TOKENS:
        counts += np.bincount(tokens[start:stop], minlength=vocab_size)
    else:
        for begin in np.linspace(start, stop - MOST_TOKENS // _STRETCHES, _STRETCHES).astype(np.int64):
            stretch = tokens[begin : begin + MOST_TOKENS // _STRETCHES]
            counts += np.bincount(stretch, minlength=vocab_size)
    known = np.full(vocab_size, -np.inf)
    known[ordinary] = np.log(counts[ordinary] + 1) - np.log(counts[ordinary].sum() + len(ordinary))
    return known

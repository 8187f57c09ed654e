"""How a text longer than the model's context is scored: in windows, every token exactly once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlm.eval.requests import Segment

PAPER_WINDOW = 1024
"""Tokens that the paper's GPT-2 reads at once (section 5.2)."""


def windows(tokens: NDArray[np.int64], window: int, stride: int, *, full_last: bool = False) -> list[Segment]:
    """Windows of `window` targets, each `stride` further on; each scores what no window before it has.

    The first scores all its targets, the others their last `stride`, so that tokens[1:] are scored once
    and tokens[0] is context only; the last window ends with the text and is shorter than the others,
    unless full_last moves its start back until it reads `window` tokens too.
    Shapes: tokens [n], n >= 2; 1 <= stride <= window.
    """
    assert len(tokens) >= 2, "there is nothing to predict"
    assert 1 <= stride <= window, (stride, window)
    targets = len(tokens) - 1
    segments = []
    start = done = 0
    while done < targets:
        end = min(start + window, targets)
        first = max(0, end - window) if full_last else start
        segments.append(Segment(tokens[first : end + 1], scored=end - done))
        done = end
        start += stride
    return segments

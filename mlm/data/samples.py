"""Windows of seq_length + 1 tokens: shuffled and endless for training, in order and once for validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlm.data.bad_data import BadData
from mlm.data.order import SampleOrder


def samples_per_epoch(tokens: int, seq_length: int) -> int:
    """Training samples one pass over `tokens` gives: windows that fit wherever an epoch begins to cut."""
    return max(1, (tokens - seq_length) // seq_length) if tokens > seq_length else 0


def validation_samples(tokens: int, seq_length: int) -> int:
    """Windows that score each of `tokens` but the first once; the last may be short."""
    return -(-(tokens - 1) // seq_length) if tokens > 1 else 0


class TokenWindows:
    """Training samples: window number n of an endless, reproducible order over tokens[start:stop].

    A sample is seq_length + 1 neighbouring tokens: the inputs and, one further, the targets. In an epoch
    the windows share no target. What they do not fill, fewer than 2*seq_length tokens, is left out at the
    beginning and the end, in each epoch differently divided, so that epochs cut the text at other places
    and every token is seen in some.
    Raises BadData when the range has fewer than seq_length + 1 tokens.
    """

    def __init__(self, tokens: NDArray[Any], start: int, stop: int, seq_length: int, seed: int):
        _check_length(stop - start, seq_length)
        self.tokens, self.start, self.seq_length = tokens, start, seq_length
        self.samples_per_epoch = samples_per_epoch(stop - start, seq_length)
        slack = stop - start - 1 - self.samples_per_epoch * seq_length
        self.order = SampleOrder(self.samples_per_epoch, slack + 1, seed)

    def batch(self, sample_numbers: ArrayLike) -> NDArray[np.int64]:
        """The tokens of the samples. Shapes: [n] -> [n, seq_length + 1]."""
        _, window, offset = self.order.locate(np.asarray(sample_numbers, dtype=np.int64))
        first = self.start + offset + window * self.seq_length  # [n]
        return self.tokens[first[:, None] + np.arange(self.seq_length + 1)].astype(np.int64)


class ValidationWindows:
    """Validation samples: tokens[start:stop] in order, each token but the first a target exactly once.

    Raises BadData when the range has fewer than seq_length + 1 tokens.
    """

    def __init__(self, tokens: NDArray[Any], start: int, stop: int, seq_length: int):
        _check_length(stop - start, seq_length)
        self.tokens, self.start, self.stop, self.seq_length = tokens, start, stop, seq_length

    def __len__(self) -> int:
        return validation_samples(self.stop - self.start, self.seq_length)

    def batch(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(tokens, mask): the mask is true where a target counts. Shapes: [n] -> [n, s+1], [n, s].

        Past the end of the range tokens repeat its last one, unscored. A number at or past len(self)
        gives a window of which nothing is scored, so that ranks can take equal shares.
        """
        first = self.start + np.asarray(numbers, dtype=np.int64) * self.seq_length  # [n]
        at = first[:, None] + np.arange(self.seq_length + 1)  # [n, s+1]
        tokens = self.tokens[np.minimum(at, self.stop - 1)].astype(np.int64)
        return tokens, at[:, 1:] < self.stop


def _check_length(tokens: int, seq_length: int) -> None:
    if tokens < seq_length + 1:
        raise BadData(
            f"a split of {tokens:,} tokens",
            f"is shorter than one sample, seq_length + 1 = {seq_length + 1:,}",
            "lower model.seq_length, or give the split more text",
        )

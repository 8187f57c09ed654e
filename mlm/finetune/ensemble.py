"""Several models asked the same, their probabilities averaged: the ensemble of the paper (section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Scores = list[NDArray[np.float64]]


def averaged(members: Sequence[Scores]) -> Scores:
    """The mean over the models of each sample's probabilities; members: at least one, of equal samples.

    Of options and classes, [k], the probabilities are what scores are. Of spans, [seq, 2], scores are logits
    of beginnings and ends: their softmax over the sequence is averaged, and the result is its logarithm.
    """
    if len(members) == 1:
        return members[0]
    return [_averaged(each) for each in zip(*members, strict=True)]


def _averaged(scores: tuple[NDArray[np.float64], ...]) -> NDArray[np.float64]:
    if scores[0].ndim == 1:
        return np.mean(scores, axis=0)
    logs = [each - np.logaddexp.reduce(each, axis=0, keepdims=True) for each in scores]
    return np.logaddexp.reduce(logs, axis=0) - np.log(len(scores))

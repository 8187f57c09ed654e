"""95 % intervals: how far a figure measured on some questions may be from that of all such questions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
RESAMPLES = 2000


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Wilson's score interval of a share at 95 %; correct of total."""
    share, z2 = correct / total, Z_95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z_95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    # At the ends of the scale the exact results are 0 and 1, which rounding would miss.
    return (0.0 if correct == 0 else middle - half), (1.0 if correct == total else middle + half)


def bootstrap(figure: Callable[..., float], *columns: NDArray[Any]) -> tuple[float, float]:
    """Percentile bootstrap interval at 95 % of figure(*columns), the questions drawn with replacement.

    The same columns give the same interval. Shapes: [n] each.
    """
    random, count = np.random.default_rng(0), len(columns[0])
    drawn = []
    for _ in range(RESAMPLES):
        places = random.integers(0, count, count)
        drawn.append(figure(*(column[places] for column in columns)))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)

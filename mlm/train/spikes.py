"""Noticing that the loss has jumped, by a rule that noise and a falling curve do not meet. Plain Python."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

RECENT_STEPS = 100
"""The past that a loss is compared with."""
FEWEST_STEPS = 20
"""Before so many, nothing is known of the noise."""
DEVIATIONS = 8.0
"""Of the noise above the median: that of normal noise passes it less than once in 10^10 steps, and still does
when the deviation is estimated from so few steps."""
LEAST_RISE = 0.02
"""Of the median: what is lower is not worth a word, however quiet the curve has been."""
_NORMAL = 1.4826  # the standard deviation of normal noise by its median absolute deviation


@dataclass(frozen=True)
class Spike:
    """A step whose loss is above `bound`, and the median of the steps before it."""

    step: int
    loss: float
    median: float
    bound: float


class SpikeWatch:
    """Compares each step's loss with the steps before it; a spike is told once, however long it lasts.

    A loss is a spike above median + max(DEVIATIONS * deviation, LEAST_RISE * median) of the last RECENT_STEPS
    losses, the deviation being that of normal noise with their median absolute deviation: neither the spike's
    own losses nor single ones before it move the bound much.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._in_spike = False

    def see(self, step: int, loss: float) -> Spike | None:
        """The spike that begins with this step, if one does. Losses that are not finite count nothing."""
        if not math.isfinite(loss):
            return None
        spike = None
        if len(self._recent) >= FEWEST_STEPS:
            median = statistics.median(self._recent)
            deviation = _NORMAL * statistics.median(abs(each - median) for each in self._recent)
            bound = median + max(DEVIATIONS * deviation, LEAST_RISE * abs(median))
            if loss > bound and not self._in_spike:
                spike = Spike(step, loss, median, bound)
            self._in_spike = loss > bound
        self._recent.append(loss)
        return spike

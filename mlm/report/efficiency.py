"""The arithmetic of scaling studies, and nothing else: rates, efficiencies, speed-up, dispersion."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """What one optimizer step of a job is, and how many devices share it."""

    processes: int
    """n, one device each."""
    flops: float
    """F: model FLOPs per step of the whole job."""
    parameters: int
    """P: of the whole model, padded vocabulary."""
    samples: int
    """B: global batch."""
    tokens: int
    """Per step of the whole job."""


@dataclass(frozen=True)
class Timing:
    """Seconds per step over the timing windows of one or more runs of a point, warm-up left out."""

    windows: int
    median_s: float
    q1_s: float
    """Lower quartile: a quarter of the windows were faster."""
    q3_s: float
    run_means_s: tuple[float, ...]
    """Of each run, total time over steps."""

    @property
    def spread(self) -> float:
        """Distance of the quartiles as a share of the median."""
        return (self.q3_s - self.q1_s) / self.median_s


def timing(runs: Sequence[Sequence[tuple[int, float]]]) -> Timing:
    """Pool the windows of several runs of one point; a window is (steps, mean seconds per step).

    Each window counts once in the median and the quartiles (linear interpolation between the nearest two).
    Every run has at least one window.
    """
    times = [seconds for run in runs for _, seconds in run]
    low, middle, high = _quartiles(times)
    means = tuple(sum(n * s for n, s in run) / sum(n for n, _ in run) for run in runs)
    return Timing(len(times), middle, low, high, means)


def flops_rate(work: Work, step_s: float) -> float:
    """FLOP/s of the whole job: F/t."""
    return work.flops / step_s


def flops_rate_per_device(work: Work, step_s: float) -> float:
    """FLOP/s of one device: F/(t n)."""
    return work.flops / (step_s * work.processes)


def tokens_rate(work: Work, step_s: float) -> float:
    """Tokens/s of the whole job."""
    return work.tokens / step_s


def efficiency_by_flops(work: Work, step_s: float, base: Work, base_step_s: float) -> float:
    """(F/(t n)) / (F0/(t0 n0)): the rate of one device as a share of the baseline's."""
    return flops_rate_per_device(work, step_s) / flops_rate_per_device(base, base_step_s)


def efficiency_by_parameters(work: Work, step_s: float, base: Work, base_step_s: float) -> float:
    """(P B/(t n)) / (P0 B0/(t0 n0)): counts parameters for FLOPs, as the paper's own team did in 2020."""
    ours = work.parameters * work.samples / (step_s * work.processes)
    return ours / (base.parameters * base.samples / (base_step_s * base.processes))


def speed_up(work: Work, step_s: float, base: Work, base_step_s: float) -> float:
    """(B/t) / (B0/t0): for one model on more devices."""
    return (work.samples / step_s) / (base.samples / base_step_s)


def efficiency_of_speed_up(times_faster: float, work: Work, base: Work) -> float:
    """Speed-up over n/n0."""
    return times_faster / (work.processes / base.processes)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high

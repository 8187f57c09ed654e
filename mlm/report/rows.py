"""One row of figures per point: every number of a report, computed once, full precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlm.report.efficiency import (
    Timing,
    Work,
    efficiency_by_flops,
    efficiency_by_parameters,
    efficiency_of_speed_up,
    flops_rate,
    flops_rate_per_device,
    speed_up,
    tokens_rate,
)
from mlm.report.outcome import Outcome, outcome, together
from mlm.report.points import Group, Point
from mlm.report.windows import Window


@dataclass(frozen=True)
class Range:
    """A figure at the median step time, and at the quartiles of the step time: low <= middle <= high."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> Range:
        """In another unit."""
        return Range(self.low * factor, self.middle * factor, self.high * factor)

    @property
    def whiskers(self) -> list[list[float]]:
        """As matplotlib's errorbar takes them: how far below the middle, how far above."""
        return [[self.middle - self.low], [self.high - self.middle]]


@dataclass(frozen=True)
class Relative:
    """A point against the baseline, the baseline at its median."""

    by_flops: Range
    by_parameters: Range
    speed_up: Range
    of_speed_up: Range
    """Speed-up over the ratio of the numbers of processes."""


@dataclass(frozen=True)
class Row:
    """The figures of a point; those that could not be had are None."""

    point: Point
    is_baseline: bool
    work: Work | None
    timing: Timing | None
    published: float | None
    """The paper's value for this point."""
    published_quantity: str | None
    """What that value is: efficiency or speed-up."""
    tokens_per_s: Range | None = None
    tflops_per_device: Range | None = None
    pflops: Range | None = None
    mfu: float | None = None
    """None: peak unknown, or nothing measured."""
    hfu: float | None = None
    relative: Relative | None = None
    outcome: Outcome | None = None
    """Over the runs that have finished; of one that diverged, if none has."""

    @property
    def label(self) -> str:
        return self.point.label


def rows(group: Group) -> list[Row]:
    """A row for every point of the group in its order, those without figures too."""
    return [_row(group, point) for point in group.points]


def efficiencies_agree(rows: Sequence[Row]) -> bool:
    """Whether counting FLOPs and counting parameters say the same: one model of one shape throughout."""
    found = [row.relative for row in rows if row.relative is not None]
    return all(math.isclose(r.by_flops.middle, r.by_parameters.middle, rel_tol=1e-3) for r in found)


def _row(group: Group, point: Point) -> Row:
    work, time = point.work, point.timing
    row = Row(
        point=point,
        is_baseline=point is group.baseline,
        work=work,
        timing=time,
        published=group.published_value(point),
        published_quantity=None if group.published is None else group.published.quantity,
        outcome=_outcome(group, point),
    )
    if work is None or time is None:
        return row
    return replace(
        row,
        tokens_per_s=_range(time, lambda s: tokens_rate(work, s)),
        tflops_per_device=_range(time, lambda s: flops_rate_per_device(work, s) / 1e12),
        pflops=_range(time, lambda s: flops_rate(work, s) / 1e15),
        mfu=_utilisation(point, time, lambda window: window.mfu),
        hfu=_utilisation(point, time, lambda window: window.hfu),
        relative=_relative(work, time, group.baseline),
    )


def _outcome(group: Group, point: Point) -> Outcome | None:
    finished = [run for run in point.runs if run.is_finished]
    return together([outcome(run, group.compare or "loss") for run in finished or point.runs])


def _range(time: Timing, rate: Callable[[float], float]) -> Range:
    """A rate, which falls as the time grows, at the median and the quartiles of the time."""
    return Range(rate(time.q3_s), rate(time.median_s), rate(time.q1_s))


def _relative(work: Work, time: Timing, baseline: Point | None) -> Relative | None:
    base = None if baseline is None else baseline.work
    base_time = None if baseline is None else baseline.timing
    if base is None or base_time is None:
        return None
    base_s = base_time.median_s
    faster = _range(time, lambda s: speed_up(work, s, base, base_s))
    return Relative(
        by_flops=_range(time, lambda s: efficiency_by_flops(work, s, base, base_s)),
        by_parameters=_range(time, lambda s: efficiency_by_parameters(work, s, base, base_s)),
        speed_up=faster,
        of_speed_up=Range(
            *(efficiency_of_speed_up(f, work, base) for f in (faster.low, faster.middle, faster.high))
        ),
    )


def _utilisation(point: Point, time: Timing, share: Callable[[Window], float | None]) -> float | None:
    """At the median step time, by the peak that the run itself knew: a window's share times its own time."""
    for window in (w for run in point.runs for w in run.windows(point.warmup_steps)):
        recorded = share(window)
        if recorded is not None:
            return recorded * window.step_time_s / time.median_s
    return None

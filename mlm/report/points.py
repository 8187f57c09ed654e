"""Points and groups: which runs are measured together, and against which baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mlm.plan.published import PUBLISHED, PublishedTable
from mlm.report.breakdown import Breakdown, mean
from mlm.report.efficiency import Timing, Work, timing
from mlm.report.run import Run


@dataclass(frozen=True)
class Attempt:
    """One run of a point that was meant to be: what became of it, and its command."""

    folder: Path
    status: str
    """finished, or as study.json has it; damaged when it cannot be read, unfinished."""
    reason: str | None
    """Why it is not, or not wholly, in the figures; None when there is nothing to say."""
    command: Sequence[str]
    run: Run | None
    """None when it cannot be read."""
    counts: bool
    """Whether its windows are in the point's figures."""


@dataclass(frozen=True)
class Point:
    """One configuration with all its runs."""

    label: str
    attempts: Sequence[Attempt]
    series: str | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    """By key, the value that puts it into a panel and on a curve of a figure of losses."""
    published_key: int | None = None
    warmup_steps: int = 0

    @property
    def runs(self) -> list[Run]:
        """Those that count."""
        return [a.run for a in self.attempts if a.run is not None and a.counts]

    @property
    def readable(self) -> list[Run]:
        """Those that count, or if there are none, those that could be read: they still have loss curves."""
        return self.runs or [a.run for a in self.attempts if a.run is not None]

    @property
    def work(self) -> Work | None:
        return self.readable[0].work if self.readable else None

    @cached_property
    def timing(self) -> Timing | None:
        timed = [found for run in self.runs if (found := run.windows(self.warmup_steps))]
        return timing([[(w.steps, w.step_time_s) for w in found] for found in timed]) if timed else None

    @property
    def breakdown(self) -> Breakdown | None:
        found = [run.breakdown for run in self.runs if run.breakdown is not None]
        return mean(found) if found else None

    @property
    def status(self) -> str:
        """finished when every run is; else what the others are, the first of them first."""
        others = [a.status for a in self.attempts if a.status != "finished"]
        return "finished" if not others else ", ".join(dict.fromkeys(others))


@dataclass(frozen=True)
class Group:
    """Points with one baseline: a study, a sweep, or runs that were named together."""

    title: str
    name: str
    """Short, and safe in file names."""
    points: Sequence[Point]
    baseline: Point | None
    """None when nothing is to be compared."""
    scaling: str | None = None
    """weak, strong or None."""
    published: PublishedTable | None = None
    compare: str | None = None
    """What of the runs is compared in place of their speed, by its name in metrics.jsonl."""
    panels: Sequence[str] = ()
    """Keys of the columns and rows of the figure of losses."""
    curves: str | None = None
    """Key of its colours."""
    command: Sequence[str] = field(default_factory=tuple)
    """That started all of it; empty for runs that were named together."""
    is_study: bool = False

    def published_value(self, point: Point) -> float | None:
        if self.published is None or point.published_key is None:
            return None
        return self.published.values.get(point.published_key)


def published_table(name: str | None) -> PublishedTable | None:
    """The paper's table of that name; None for no name, or one that this version does not know."""
    return None if name is None else PUBLISHED.get(name)

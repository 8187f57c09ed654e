"""Fine-tunings that differ in their seed alone: median and spread of their best scores (section 5.3)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlm.config.fields import flatten
from mlm.report.points import Point
from mlm.report.run import Run

_OF_ONE_RUN = {"seed", "run_dir", "sweep_dir", "resume", "dp", "launch.threads"}
"""Keys that do not make another experiment of a run."""


@dataclass(frozen=True)
class Spread:
    """The best development score of each of several runs, shares in [0, 1], the lowest first."""

    task: str
    figure: str
    scores: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.scores)

    def said(self) -> str:
        """For people: race, accuracy: median 83.0 % of 5 seeds (82.1 to 84.4 %)."""
        found = f"{self.task}, {self.figure}: "
        if len(self.scores) == 1:
            return f"{found}{100 * self.median:.1f} % (seed {self.seeds[0]})"
        low, high = (100 * score for score in (self.scores[0], self.scores[-1]))
        return (
            f"{found}median {100 * self.median:.1f} % of {len(self.scores)} seeds ({low:.1f} to {high:.1f} %)"
        )


def spreads(points: Sequence[Point]) -> list[Spread]:
    """Of finished fine-tunings, those that belong together, in the order of their first runs."""
    alike: dict[str, list[tuple[float, int, str, str]]] = {}
    for run in (run for point in points for run in point.runs):
        best = _best(run)
        task = run.config.finetune.task
        if best is None or task is None:
            continue
        key = {name: value for name, value in flatten(run.config).items() if name not in _OF_ONE_RUN}
        name = json.dumps(key, default=str, sort_keys=True)
        alike.setdefault(name, []).append((float(best["value"]), run.config.seed, task, str(best["figure"])))
    found = []
    for runs in alike.values():
        runs.sort()
        scores, seeds, tasks, figures = zip(*runs, strict=True)
        found.append(Spread(tasks[0], figures[0], scores, seeds))
    return found


def _best(run: Run) -> dict[str, Any] | None:
    """What summary.json says of the best checkpoint; None where there is none."""
    best = None if run.summary is None else run.summary.get("best")
    is_whole = isinstance(best, dict) and isinstance(best.get("value"), float) and "figure" in best
    return best if is_whole else None

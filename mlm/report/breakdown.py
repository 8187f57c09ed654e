"""Where the time of a step went, from a profiled run's profile/time.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS: Mapping[str, str] = {
    "compute_s": "compute",
    "exposed_communication_s": "exposed communication",
    "data_s": "data",
    "optimizer_s": "optimizer",
    "other_s": "other",
}
"""Key in time.json -> words. Exposed: communication during which its rank computes nothing."""


@dataclass(frozen=True)
class Breakdown:
    """Seconds of a profiled step by kind, the mean over ranks and over the profiled steps."""

    steps: int
    """Profiled steps."""
    ranks: int
    seconds: Mapping[str, float]
    """By the keys of KINDS; their sum is the step."""

    @property
    def step_s(self) -> float:
        return sum(self.seconds.values())


def read_breakdown(path: Path, flaws: list[str]) -> Breakdown | None:
    """The breakdown in time.json; None when there is none, with a flaw when it is there but damaged."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        flaws.append(f"{path.parent.name}/{path.name} cannot be read")
        return None
    try:
        return _breakdown(content)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        flaws.append(f"{path.parent.name}/{path.name} is not a table of times")
        return None


def mean(found: list[Breakdown]) -> Breakdown:
    """Of the repeats of one point, each counting once."""
    seconds = {kind: sum(b.seconds[kind] for b in found) / len(found) for kind in KINDS}
    return Breakdown(sum(b.steps for b in found), found[0].ranks, seconds)


def _breakdown(content: Any) -> Breakdown:
    ranks = content["ranks"]
    seconds = {kind: sum(float(rank[kind]) for rank in ranks) / len(ranks) for kind in KINDS}
    if any(not value >= 0 for value in seconds.values()):
        raise ValueError("a time is negative or no number")
    return Breakdown(len(content["steps"]), len(ranks), seconds)

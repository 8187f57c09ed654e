"""Timing windows out of the step records of metrics.jsonl: the only clock that figures rest on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """Steps between two moments at which the host waited for the device."""

    first_step: int
    last_step: int
    steps: int
    step_time_s: float
    """Mean of its steps."""
    mfu: float | None
    """As recorded; None: peak unknown."""
    hfu: float | None


def windows(train: Sequence[Mapping[str, Any]], warmup_steps: int) -> list[Window]:
    """The windows whose steps all come after the warm-up.

    A window that holds a step of the warm-up is left out as a whole, since only its mean is known. Profiled
    steps and steps without a time are in no window.
    """
    return [window for window in _all(train) if window.first_step > warmup_steps]


def _all(train: Sequence[Mapping[str, Any]]) -> Iterator[Window]:
    members: list[Mapping[str, Any]] = []
    for record in train:
        # A window's records stand together and carry the same mean. Its length is recorded; equal times alone
        # could be two windows.
        if members and (len(members) >= _length(members[0]) or _time(record) != _time(members[0])):
            yield from _window(members)
            members = []
        members.append(record)
    if members:
        yield from _window(members)


def _window(members: Sequence[Mapping[str, Any]]) -> Iterator[Window]:
    """The window of these records; nothing when it was not timed or is not to count."""
    first, time_s, length = members[0], _time(members[0]), _length(members[0])
    if time_s is not None and not first.get("profiled"):
        steps = int(length) if length < math.inf else len(members)
        last = members[-1]["step"]
        yield Window(first["step"], last, steps, time_s, _share(first, "mfu"), _share(first, "hfu"))


def _length(record: Mapping[str, Any]) -> float:
    """Steps of the record's window; infinite where it is not recorded and equal times have to do."""
    value = record.get("window_steps")
    return value if isinstance(value, int) and value > 0 else math.inf


def _time(record: Mapping[str, Any]) -> float | None:
    value = record.get("step_time_s")
    return float(value) if isinstance(value, (int, float)) and 0 < value < math.inf else None


def _share(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None

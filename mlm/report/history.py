"""One line of steps out of the records of a run that was stopped, killed and continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
"""A line of metrics.jsonl."""


def unbroken(records: Sequence[Record]) -> list[Record]:
    """The records, in the order of their writing, of the steps that the run's last state rests on.

    A `resume` record says after which step an attempt goes on: what was recorded of later steps by attempts
    before it is taken back, so that each step stands once. The time of an attempt's first window goes too:
    it holds the warm-up of new processes.
    """
    kept: list[Record] = []
    first_window: int | None = None
    for record in records:
        if record.get("kind") == "resume":
            kept = [each for each in kept if each["step"] <= record["step"]]
            first_window = None if record["step"] == 0 else record["step"] + 1
        elif record.get("kind") == "train" and record["step"] == first_window:
            first_window = None
            kept.append({**record, "step_time_s": None})
        else:
            kept.append(record)
    return kept

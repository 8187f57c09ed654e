"""What a reader should know before believing a table: mixed conditions, too few windows, wide spread."""

from __future__ import annotations

from collections.abc import Sequence

from mlm.report.differences import environment_facts
from mlm.report.points import Group
from mlm.report.rows import Row
from mlm.report.words import count, percent, shorten

FEWEST_WINDOWS = 5
"""Quartiles of fewer than this say little."""
WIDEST_SPREAD = 0.05
"""Distance of the quartiles over the median; beyond it a difference of a few percent means nothing."""

_SAME = {
    "device": "devices",
    "precision": "precisions",
    "host": "machines",
    "commit": "commits of mlm",
    "version of mlm": "versions of mlm",
    "version of torch": "versions of torch",
    "version of python": "versions of Python",
}
"""What all runs of a table should have in common -> its name when they do not."""
_SHOWN = 3


def cautions(group: Group, rows: Sequence[Row]) -> list[str]:
    """One sentence each, the gravest first; [] when nothing stands against the table."""
    if group.compare is not None:
        return [*_missing(group, rows), *_mixed(group), *_edited(group)]
    return [*_missing(group, rows), *_mixed(group), *_few(rows), *_wide(rows), *_edited(group)]


def _missing(group: Group, rows: Sequence[Row]) -> list[str]:
    found = []
    without = [row.label for row in rows if _has_nothing(group, row)]
    if without and len(without) < len(rows):
        found.append(
            f"No figures for {_names(without)}: see what is said of unfinished, failed and damaged runs."
        )
    if group.baseline is not None and group.baseline.timing is None:
        found.append(f"The baseline {group.baseline.label} has no figures, so there is no efficiency.")
    elif group.is_study and group.compare is None and group.baseline is None and len(rows) > 1:
        found.append("The study's baseline is none of its points, so there is no efficiency.")
    partly = [
        f"{row.label} ({len(row.point.runs)} of {len(row.point.attempts)})"
        for row in rows
        if 0 < len(row.point.runs) < len(row.point.attempts)
    ]
    if partly:
        found.append(f"Fewer repeats than planned: {_names(partly)}.")
    return found


def _has_nothing(group: Group, row: Row) -> bool:
    return row.timing is None if group.compare is None else row.outcome is None


def _mixed(group: Group) -> list[str]:
    facts = [environment_facts(run) for point in group.points for run in point.runs]
    found = []
    for key, plural in _SAME.items():
        values = list(dict.fromkeys(fact[key] for fact in facts if key in fact))
        if len(values) > 1:
            found.append(f"Runs on different {plural}: {_names([shorten(v, 60) for v in values])}.")
    return found


def _few(rows: Sequence[Row]) -> list[str]:
    few = [
        f"{row.label} ({row.timing.windows})"
        for row in rows
        if row.timing is not None and row.timing.windows < FEWEST_WINDOWS
    ]
    return (
        [f"Fewer than {FEWEST_WINDOWS} timing windows, too few for quartiles: {_names(few)}."] if few else []
    )


def _wide(rows: Sequence[Row]) -> list[str]:
    wide = [
        f"{row.label} ({percent(row.timing.spread)})"
        for row in rows
        if row.timing is not None and row.timing.windows > 1 and row.timing.spread > WIDEST_SPREAD
    ]
    limit = percent(WIDEST_SPREAD, 0)
    return [f"Step times scatter by more than {limit} between quartiles: {_names(wide)}."] if wide else []


def _edited(group: Group) -> list[str]:
    facts = [environment_facts(run) for point in group.points for run in point.runs]
    edited = sum(fact.get("checkout", "").startswith("edited") for fact in facts)
    if not edited:
        return []
    whose = "every run" if edited == len(facts) else f"{edited} of {count(len(facts), 'run')}"
    return [f"The code of {whose} was edited after its commit, so the commit alone does not repeat it."]


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"

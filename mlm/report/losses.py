"""The table of a study that compares losses, and what to read first of it: for the page and the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlm.report import words
from mlm.report.outcome import FIGURES, Outcome
from mlm.report.points import Group, Point
from mlm.report.rows import Row

SHORT: Mapping[str, str] = {
    "loss": "loss",
    "masked_loss": "masked loss",
    "masked_accuracy": "tokens right",
    "order_loss": "order loss",
    "order_accuracy": "orders right",
}
"""FIGURES as the head of a column."""


@dataclass(frozen=True)
class Cell:
    """What stands in a table. note: smaller, below it."""

    text: str
    note: str = ""
    is_best: bool = False
    """The lowest of its panel."""


@dataclass(frozen=True)
class LossTable:
    """heads: (name, unit) of the columns after the point; lines: each point's cells."""

    heads: Sequence[tuple[str, str]]
    lines: Sequence[tuple[Row, Sequence[Cell]]]


def loss_table(group: Group, rows: Sequence[Row]) -> LossTable:
    """The compared figure first, then what else was validated, then how the training went."""
    compared = group.compare or "loss"
    others = [
        name
        for name in FIGURES
        if name != compared and any(row.outcome and name in row.outcome.valid for row in rows)
    ]
    names = [compared, *others]
    heads = [(SHORT[name], "nats" if name.endswith("loss") else "") for name in names]
    heads += [("rise", "nats"), ("largest norm", "of the gradient"), ("spikes", ""), ("skipped", "steps")]
    heads += [("steps", "")]
    best = {id(row) for row in _best(group, rows)}
    lines = [(row, _cells(row, names, id(row) in best)) for row in rows]
    return LossTable(heads, lines)


def facts(group: Group, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """(figure, what it is): how many, the lowest, what diverged, and the widest gap between two curves."""
    name = group.compare or "loss"
    found = [(f"{len(rows):,}", f"points, {words.count(sum(len(r.point.runs) for r in rows), 'run')}")]
    validated = [(row.outcome.valid[name], row) for row in rows if row.outcome and name in row.outcome.valid]
    if validated:
        lowest, row = min(validated, key=lambda entry: entry[0])
        found.append((f"{lowest:.3f}", f"lowest {FIGURES[name]} in validation: {row.label}"))
    gap = _widest(group, rows, name)
    if gap is not None:
        found.append(gap)
    diverged = [row.label for row in rows if has_diverged(row.point)]
    if diverged:
        found.append((f"{len(diverged):,}", f"diverged: {', '.join(diverged)}"))
    return found


def has_diverged(point: Point) -> bool:
    """Whether one of its runs has."""
    return any(attempt.status == "diverged" for attempt in point.attempts)


def panels_of(group: Group, rows: Sequence[Row]) -> list[list[Row]]:
    """The rows by panel."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.point.places.get(key, "") for key in group.panels), []).append(row)
    return list(found.values())


def _best(group: Group, rows: Sequence[Row]) -> list[Row]:
    """Of each panel with several validated points the lowest."""
    ranked = [_ranked(panel, group.compare or "loss") for panel in panels_of(group, rows)]
    return [panel[0][1] for panel in ranked if len(panel) > 1]


def _widest(group: Group, rows: Sequence[Row], name: str) -> tuple[str, str] | None:
    """The largest difference inside of a panel."""
    ranked = [_ranked(panel, name) for panel in panels_of(group, rows)]
    gaps = [(panel[-1][0] - panel[0][0], panel[-1][1], panel[0][1]) for panel in ranked if len(panel) > 1]
    if not gaps or not group.panels:
        return None
    gap, worse, better = max(gaps, key=lambda entry: entry[0])
    return f"{gap:.3f}", f"widest gap in a panel, nats: {worse.label} above {better.label}"


def _ranked(panel: Sequence[Row], name: str) -> list[tuple[float, Row]]:
    """What was validated, the lowest first."""
    found = [(row.outcome.valid[name], row) for row in panel if row.outcome and name in row.outcome.valid]
    return sorted(found, key=lambda entry: entry[0])


def _cells(row: Row, names: Sequence[str], is_best: bool) -> list[Cell]:
    end, blank = row.outcome, Cell(words.UNKNOWN)
    if end is None:
        return [blank] * (len(names) + 5)
    cells = [
        Cell(_figure(name, end.valid[name]), is_best=is_best and n == 0) if name in end.valid else blank
        for n, name in enumerate(names)
    ]
    if has_diverged(row.point) and not end.valid:
        cells[0] = Cell("diverged", f"after step {end.last_step:,}")
    counts: list[Callable[[Outcome], float]] = [lambda o: o.spikes, lambda o: o.skipped]
    return [
        *cells,
        blank if end.rise is None else Cell(f"{end.rise:.3f}"),
        blank if end.largest_norm is None else Cell(words.significant(end.largest_norm)),
        *(Cell(f"{count(end):,.3g}") for count in counts),
        Cell(f"{end.last_step:,}"),
    ]


def _figure(name: str, value: float) -> str:
    return f"{value:.4f}" if name.endswith("loss") else words.percent(value)

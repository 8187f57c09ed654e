"""A whole report in memory: the page, the tables and the pictures by the names of their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlm.report import bars, curves, loss_panels
from mlm.report.efficiency_bars import efficiency
from mlm.report.page import Section, render
from mlm.report.points import Group
from mlm.report.right import right
from mlm.report.rows import Row, rows
from mlm.report.style import Picture
from mlm.report.tables import points_csv, runs_csv
from mlm.report.write import PAGE

Draw = Callable[[Group, Sequence[Row], str], Picture | None]
TABLE, RUNS = "table.csv", "runs.csv"


@dataclass(frozen=True)
class Report:
    """What is written, and the figures it was made of for the console."""

    title: str
    rows: Sequence[tuple[Group, Sequence[Row]]]
    files: dict[str, str | bytes]


def build(groups: Sequence[Group]) -> Report:
    """Compute and draw everything; the same bytes for the same runs."""
    tables = [(group, rows(group)) for group in groups]
    sections = [
        Section(group, found, _pictures(group, found, _prefix(groups, group))) for group, found in tables
    ]
    pictures = [picture for section in sections for picture in section.pictures]
    title = groups[0].title if len(groups) == 1 else f"{len(groups)} studies and comparisons"
    pngs = {f"{picture.slug}.png": picture.png for picture in pictures}
    page = render(title, sections, [TABLE, RUNS, *pngs])
    return Report(title, tables, {PAGE: page, TABLE: points_csv(tables), RUNS: runs_csv(groups), **pngs})


def _pictures(group: Group, found: Sequence[Row], prefix: str) -> list[Picture]:
    drawn: list[Picture | None]
    if group.compare is not None:
        drawn = [loss_panels.losses(group, f"{prefix}losses")]
        return [picture for picture in drawn if picture is not None]
    if len(group.points) == 1:
        drawn = [curves.over_steps(group.points[0], f"{prefix}throughput")]
    else:
        scaled = (curves.speed_up, "speed-up") if group.scaling == "strong" else (efficiency, "efficiency")
        kinds: list[tuple[Draw, str]] = [scaled, (bars.throughput, "throughput")]
        drawn = [draw(group, found, prefix + slug) for draw, slug in kinds]
    drawn.append(bars.where_time_goes(group, found, f"{prefix}time"))
    drawn.append(curves.loss(group.points, f"{prefix}loss"))
    if len(group.points) == 1:
        drawn.append(right(group.points[0], f"{prefix}right"))
    return [picture for picture in drawn if picture is not None]


def _prefix(groups: Sequence[Group], group: Group) -> str:
    """Before the names of a group's pictures, so that those of several groups differ."""
    if len(groups) == 1:
        return ""
    position = next(n for n, other in enumerate(groups, 1) if other is group)
    return f"{group.name.lower()}-{position}-"

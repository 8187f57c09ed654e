"""One call of mlm-report: read, refuse what makes no sense, compute, write, and say what was found."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mlm.errors import ConfigError, Problem
from mlm.report import words
from mlm.report.build import Report, build
from mlm.report.cautions import cautions
from mlm.report.gather import gather
from mlm.report.losses import has_diverged, loss_table
from mlm.report.page import amiss
from mlm.report.points import Group
from mlm.report.rows import Row
from mlm.report.seeds import spreads
from mlm.report.write import PAGE, problems, write

REPORT = "report"
"""Name of the default folder."""


def report(
    runs: Sequence[Path],
    *,
    out: str | None,
    baseline: str | None,
    warmup_steps: int | None,
    flaws: Sequence[Problem] = (),
) -> int:
    """Write a report on the runs and return 0.

    flaws: what is wrong with the command line already. Raises ConfigError with them and every problem of the
    runs and the folder, or when nothing can be read.
    """
    folder = Path(REPORT) if out is None else Path(out).expanduser()
    if out is None and len(runs) == 1:
        folder = runs[0] / REPORT
    found = list(flaws)
    try:
        groups = gather(runs, baseline=baseline, warmup_steps=warmup_steps)
    except ConfigError as error:
        raise ConfigError([*found, *error.problems]) from None
    if runs and not any(point.readable for group in groups for point in group.points):
        found += _nothing_readable(groups)
    found += problems(folder)
    if found:
        raise ConfigError(found)
    built = build(groups)
    write(folder, built.files)
    _say(built, folder)
    return 0


def _nothing_readable(groups: Sequence[Group]) -> list[Problem]:
    attempts = [attempt for group in groups for point in group.points for attempt in point.attempts]
    if not attempts:
        titles = ", ".join(group.title for group in groups)
        return [Problem(titles, "has no runs", "run the study first")]
    remedy = "report on a run that got further"
    return [
        Problem(str(a.folder), f"{a.status}: {a.reason or 'nothing can be read'}", remedy) for a in attempts
    ]


def _say(built: Report, folder: Path) -> None:
    """The tables and everything that is amiss, then where the page is."""
    width = max(80, shutil.get_terminal_size((118, 24)).columns) if sys.stdout.isatty() else 160
    console = Console(highlight=False, markup=False, width=width)
    for group, rows in built.rows:
        console.print(group.title, style="bold")
        console.print(_table(group, rows))
        for spread in spreads(group.points):
            console.print(f"  {spread.said()}", soft_wrap=True)
        for caution in cautions(group, rows):
            console.print(f"  note: {caution}", soft_wrap=True)
    missing = amiss([point for group, _ in built.rows for point in group.points])
    if missing:
        diverged = any(has_diverged(point) for point, _ in missing)
        which = f"unfinished, failed{', diverged' if diverged else ''} or damaged:"
        console.print(which, style="bold")
    for point, attempt in missing:
        console.print(
            f"  {point.label}: {attempt.status}, {attempt.reason} ({attempt.folder})", soft_wrap=True
        )
    console.print(f"report in {folder / PAGE}", soft_wrap=True)


def _losses(group: Group, rows: Sequence[Row]) -> Table:
    found = loss_table(group, rows)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("point", overflow="fold")
    for name, _ in found.heads:
        table.add_column(name, justify="right", no_wrap=True)
    for row, cells in found.lines:
        table.add_row(row.label, *(f"{cell.text} {cell.note}".strip() for cell in cells))
    return table


def _table(group: Group, rows: Sequence[Row]) -> Table:
    if group.compare is not None:
        return _losses(group, rows)
    size, unit = words.time_unit([row.timing.median_s for row in rows if row.timing])
    is_relative = any(row.relative for row in rows)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("point", overflow="fold")
    heads = ["processes", f"step, {unit}", "spread", "tokens/s", "PFLOP/s", "MFU"]
    if is_relative:
        heads += ["speed-up"] if group.scaling == "strong" else ["by FLOPs", "by parameters"]
    if group.published:
        heads.append("paper")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.label, *_cells(row, size, group, is_relative))
    return table


def _cells(row: Row, size: float, group: Group, is_relative: bool) -> list[str]:
    blank = words.UNKNOWN
    cells = [str(row.work.processes) if row.work else blank]
    if row.timing and row.tokens_per_s and row.pflops:
        cells += [
            words.significant(row.timing.median_s / size),
            words.percent(row.timing.spread),
            words.significant(row.tokens_per_s.middle),
            f"{row.pflops.middle:.3g}",
            "unknown" if row.mfu is None else words.percent(row.mfu),
        ]
    else:
        cells += [blank] * 5
    if is_relative and group.scaling == "strong":
        cells.append(f"{row.relative.speed_up.middle:.2f}" if row.relative else blank)
    elif is_relative:
        found = (row.relative.by_flops, row.relative.by_parameters) if row.relative else ()
        cells += [words.percent(share.middle) for share in found] or [blank, blank]
    if group.published:
        is_factor = row.published_quantity == "speed-up"
        value = row.published
        cells.append(blank if value is None else f"{value:.2f}" if is_factor else words.percent(value, 0))
    return cells

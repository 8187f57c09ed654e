"""What a sweep says of its points at the end: one table, with the figures that its report will have."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from mlm.launch.plan_text import plan_console
from mlm.studies.record import FINISHED, Point, Study

if TYPE_CHECKING:
    from mlm.report.points import Group
    from mlm.report.rows import Row


def show_summary(study: Study) -> None:
    """Print a line per point: what became of its repeats and, as far as they finished, how fast they were.

    Reads study.json and the directories of the runs as they are now.
    """
    from mlm.report.gather import gather
    from mlm.report.rows import rows

    (group,) = gather([study.folder], baseline=None, warmup_steps=None)
    if group.compare is not None:
        _show_losses(study, group)
        return
    console = plan_console()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("point", overflow="fold")
    table.add_column("runs", overflow="fold")
    for name in ("s/step", "tokens/s", "throughput", *(["efficiency"] if study.baseline else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for point, row in zip(study.points, rows(group), strict=True):
        figures = _figures(row, strong=study.scaling == "strong")
        table.add_row(*map(Text, [point.label, states(point), *figures[: None if study.baseline else -1]]))
    note = "; medians after the warm-up" if study.warmup_steps else "; medians"
    against = f", efficiency against {study.baseline}" if study.baseline else ""
    console.print(f"\n{study.title}{note}{against}", style="bold")
    console.print(table)
    console.print()


def _show_losses(study: Study, group: Group) -> None:
    from mlm.report.losses import loss_table
    from mlm.report.rows import rows

    found, console = loss_table(group, rows(group)), plan_console()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("point", overflow="fold")
    table.add_column("runs", overflow="fold")
    for name, _ in found.heads:
        table.add_column(name, justify="right", no_wrap=True)
    for point, (_, cells) in zip(study.points, found.lines, strict=True):
        table.add_row(*map(Text, [point.label, states(point), *(cell.text for cell in cells)]))
    console.print(f"\n{study.title}; validation after the last step", style="bold")
    console.print(table)
    console.print()


def states(point: Point) -> str:
    """`finished`, `3 finished`, `2 finished, 1 failed`."""
    counts = Counter(run.status for run in point.runs)
    if len(point.runs) == 1:
        return point.runs[0].status
    order = sorted(counts, key=lambda status: status != FINISHED)
    return ", ".join(f"{counts[status]} {status}" for status in order)


def _figures(row: Row, *, strong: bool) -> list[str]:
    from mlm.report.words import UNKNOWN, flops_unit, percent, significant

    if row.timing is None or row.tokens_per_s is None or row.pflops is None:
        return [UNKNOWN] * 4
    rate = row.pflops.middle * 1e15
    size, unit = flops_unit([rate])
    relative = row.relative
    share = None if relative is None else (relative.of_speed_up if strong else relative.by_flops).middle
    return [
        significant(row.timing.median_s),
        significant(row.tokens_per_s.middle),
        f"{significant(rate / size)} {unit}",
        UNKNOWN if share is None else percent(share),
    ]

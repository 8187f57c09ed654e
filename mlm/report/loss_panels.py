"""Losses side by side, as in the paper's Figure 7: a panel per size, a colour per choice in all panels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlm.report.curves import over_step_axis, thinned
from mlm.report.outcome import FIGURES, outcome, series
from mlm.report.points import Group, Point
from mlm.report.run import Run
from mlm.report.style import PALETTE, WIDTH, Picture, curve, panels, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlm.report.style import Grid

POINTS = 25
"""Of a curve: more of them would draw the noise of the batches."""
FALL = 0.15
"""Share of the steps in which all curves fall alike from ln(V), and may stick out at the top."""

Look = Mapping[str, Any]


def losses(group: Group, slug: str) -> Picture | None:
    """A grid of panels by group.panels, their curves by group.curves: one for each run that counts."""
    shown = [point for point in group.points if point.runs]
    if not shown:
        return None
    name = group.compare or "loss"
    keys = [*group.panels, None, None][:2]
    columns, rows = (_values(shown, key) for key in keys)
    looks = {value: curve(n) for n, value in enumerate(_values(shown, group.curves))}
    width = max(WIDTH * 0.8, 1.0 + 2.3 * len(columns))
    with panels(width, 1.0 + 2.1 * len(rows), len(rows), len(columns)) as (figure, grid):
        limits = _limits([run for point in shown for run in point.runs], name)
        grid[0][0].set_ylim(limits)
        together = 1
        for axes, place in _cells(grid, rows, columns):
            inside = [p for p in shown if tuple(_value(p, key) for key in keys) == place]
            titles = [named(key, value) for key, value in zip(keys, place, strict=True) if key]
            axes.set_title(", ".join(titles))
            for point in inside:
                for run in point.runs:
                    drawn = _draw(axes, run, name, looks[_value(point, group.curves)], limits[1])
                    together = max(together, drawn)
        _name_axes(grid, f"{FIGURES[name]}, nats")
        is_cut = any(not run.is_finished for point in shown for run in point.runs)
        _legend(figure, looks, group.curves, is_cut=is_cut)
        return picture(figure, slug=slug, heading="Losses", caption=_caption(group, name, together))


def named(key: str, value: str) -> str:
    """model.num_layers, 24 -> num_layers=24."""
    return f"{key.rpartition('.')[2]}={value}"


def _values(points: Sequence[Point], key: str | None) -> list[str]:
    """What the points have for the key, in their order."""
    return list(dict.fromkeys(_value(point, key) for point in points))


def _value(point: Point, key: str | None) -> str:
    return "" if key is None else point.places.get(key, "")


def _cells(grid: Grid, rows: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Axes, tuple[str, str]]]:
    for axes_of_row, row in zip(grid, rows, strict=True):
        for axes, column in zip(axes_of_row, columns, strict=True):
            yield axes, (column, row)


def _draw(axes: Axes, run: Run, name: str, look: Look, high: float) -> int:
    """Draw a run and return how many steps a point of its curve stands for."""
    steps, values, together = thinned(series(run, name, "train"), "loss", POINTS)
    axes.plot(steps, values, linewidth=1.3, **look)
    valid = series(run, name, "valid")
    axes.plot([r["step"] for r in valid], [r["loss"] for r in valid], "o", color=look["color"], ms=4)
    if not run.is_finished and steps:
        # Inside of the panel, however high the loss was at last.
        axes.plot(
            steps[-1:], [min(values[-1], high)], "X", color=look["color"], ms=9, clip_on=False, zorder=5
        )
    return together


def _limits(runs: Sequence[Run], name: str) -> tuple[float, float]:
    """Of the loss: all of every run after its first FALL of the planned steps, and validation."""
    found = []
    for run in runs:
        steps, values, _ = thinned(series(run, name, "train"), "loss", POINTS)
        late = [v for step, v in zip(steps, values, strict=True) if step > FALL * run.config.train.steps]
        found += late or values
        found += [r["loss"] for r in series(run, name, "valid")]
    low, high = min(found, default=0.0), max(found, default=1.0)
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def _name_axes(grid: Grid, quantity: str) -> None:
    for axes in grid[-1]:
        over_step_axis(axes)
        axes.set_xlim(left=0)
    for row in grid:
        row[0].set_ylabel(quantity)


def _legend(figure: Figure, looks: Mapping[str, Look], key: str | None, *, is_cut: bool) -> None:
    from matplotlib.lines import Line2D

    muted = PALETTE["muted"][0]
    lines = {named(key, value): Line2D([], [], **look) for value, look in looks.items()} if key else {}
    lines["validation"] = Line2D([], [], color=muted, marker="o", ms=4, linestyle="none")
    if is_cut:
        lines["diverged: the run ended"] = Line2D([], [], color=muted, marker="X", ms=8, linestyle="none")
    figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=len(lines))


def _caption(group: Group, name: str, together: int) -> str:
    mean = "" if together == 1 else f", each point of a curve the mean of up to {together} steps"
    caption = (
        f"{FIGURES[name].capitalize()} in training{mean}, and dots for validation. The axes are the same in "
        "all panels; where all curves fall from the start they may stick out at the top."
    )
    ended = [
        f"{point.label} at step {outcome(run, name).last_step:,}"
        for point in group.points
        for run in point.runs
        if not run.is_finished
    ]
    if ended:
        caption += f" Crosses, where a curve ends since the loss was no number any more: {'; '.join(ended)}."
    absent = [f"{point.label} ({point.status})" for point in group.points if not point.runs]
    if absent:
        caption += f" Not drawn: {', '.join(absent)}."
    return caption

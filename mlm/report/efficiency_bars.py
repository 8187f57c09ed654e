"""Efficiency as standing bars in the form of the paper's Figure 5, with the paper's own beside ours."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from mlm.plan.published import PublishedTable
from mlm.report.points import Group
from mlm.report.rows import Range, Relative, Row, efficiencies_agree
from mlm.report.style import PALETTE, PLATE, WHISKER, WIDTH, Picture, drawing, picture
from mlm.report.words import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MUTED = PALETTE["muted"][0]
_CLUSTER = 0.84
"""Share of the distance between two points that their bars take up."""
_FEWEST_PLACES = 4
"""Room for so many points, so that the bars of two are no walls."""
Kind = tuple[str, str, Callable[[Relative], Range]]
"""Name, colour, figure."""


def efficiency(group: Group, rows: Sequence[Row], slug: str) -> Picture | None:
    """Bars of each point by FLOPs, by parameters where that differs, and the paper's; None for one point."""
    measured = [row for row in rows if row.relative is not None]
    if len(measured) < 2 or group.baseline is None:
        return None
    paper = group.published if any(_published(row) is not None for row in measured) else None
    kinds = _kinds(measured)
    bars = len(kinds) + (paper is not None)
    places, series = _places(measured)
    with drawing(max(WIDTH, 1.0 + (places[-1] + 1) * max(0.85, 0.42 * bars)), 3.9) as (figure, axes):
        for number, kind in enumerate(kinds):
            _ours(axes, measured, kind, _at(places, number, bars), _CLUSTER / bars)
        if paper is not None:
            _papers(axes, measured, paper, _at(places, bars - 1, bars), _CLUSTER / bars)
        axes.axhline(100, color=_MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_xticks(places, [_stacked(row.label) for row in measured])
        spare = max(0.0, _FEWEST_PLACES - places[-1] - 1) / 2
        axes.set_xlim(-0.5 - spare, places[-1] + 0.5 + spare)
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, _top(measured, kinds) * (1.24 if series else 1.1))
        axes.set_ylabel("rate per device, % of the baseline's")
        _name_series(axes, series)
        if bars > 1:
            figure.legend(loc="outside lower center", ncols=3)
        heading = "Efficiency" if group.scaling else "Rate per device"
        return picture(figure, slug=slug, heading=heading, caption=_caption(group, paper))


def _kinds(measured: Sequence[Row]) -> list[Kind]:
    kinds: list[Kind] = [("ours, by FLOPs", "blue", lambda r: r.by_flops)]
    if not efficiencies_agree(measured):
        kinds.append(("ours, by parameters", "pale", lambda r: r.by_parameters))
    return kinds


def _ours(axes: Axes, rows: Sequence[Row], kind: Kind, at: Sequence[float], width: float) -> None:
    name, colour, pick = kind
    shares = [pick(row.relative).times(100) for row in rows if row.relative is not None]
    heights = [share.middle for share in shares]
    axes.bar(at, heights, width * 0.94, color=PALETTE[colour][0], label=name)
    for x, share in zip(at, shares, strict=True):
        axes.errorbar(x, share.middle, yerr=share.whiskers, **WHISKER)
        _above(axes, x, share.high, f"{share.middle:.0f}")


def _papers(
    axes: Axes, rows: Sequence[Row], paper: PublishedTable, at: Sequence[float], width: float
) -> None:
    shown = [
        (x, 100 * value) for x, row in zip(at, rows, strict=True) if (value := _published(row)) is not None
    ]
    axes.bar(
        [x for x, _ in shown],
        [height for _, height in shown],
        width * 0.94,
        facecolor="none",
        edgecolor=_MUTED,
        hatch="////",
        label=f"the paper, on {paper.machine}",
    )
    for x, height in shown:
        _above(axes, x, height, f"{height:.0f}")


def _published(row: Row) -> float | None:
    return row.published if row.published_quantity == "efficiency" else None


def _top(rows: Sequence[Row], kinds: Sequence[Kind]) -> float:
    return max(100.0, *(100 * pick(r.relative).high for r in rows if r.relative for _, _, pick in kinds))


def _caption(group: Group, paper: PublishedTable | None) -> str:
    assert group.baseline is not None, "without a baseline there is no figure"
    what = "Weak scaling efficiency" if group.scaling == "weak" else "Rate per device"
    caption = (
        f"{what} against {group.baseline.label}: 100 % is the baseline's rate on every device. "
        "Whiskers are the quartiles of the timing windows."
    )
    return caption if paper is None else f"{caption} Hatched: {paper.caption}; {paper.machine}."


def _above(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (0, 4), textcoords="offset points", ha="center", fontsize=8, bbox=PLATE)


def _at(places: Sequence[float], number: int, bars: int) -> list[float]:
    """Middle of the bar of that number in each cluster."""
    return [x + (number - (bars - 1) / 2) * _CLUSTER / bars for x in places]


def _places(rows: Sequence[Row]) -> tuple[list[float], list[tuple[str, float, float]]]:
    """Where each group of bars stands, with a gap between series; (name, first, last) of named series."""
    places: list[float] = []
    series: list[tuple[str, float, float]] = []
    at = 0.0
    for name, members in groupby(rows, key=lambda row: row.point.series):
        inside = [at + n for n in range(len(list(members)))]
        if name is not None:
            series.append((name, inside[0], inside[-1]))
        places += inside
        at = inside[-1] + 1.5
    return places, series


def _name_series(axes: Axes, series: Sequence[tuple[str, float, float]]) -> None:
    for name, first, last in series:
        axes.annotate(
            textwrap.fill(shorten(name, 48), 16 + round(16 * (last - first))),
            ((first + last) / 2, 1),
            (0, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            va="top",
            color=_MUTED,
        )


def _stacked(label: str) -> str:
    """A point's name below its bars: its parts on lines of their own."""
    parts = [shorten(part, 18) for part in label.replace(" ", ",").split(",") if part]
    return "\n".join(parts[:4])

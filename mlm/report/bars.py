"""Figures with lying bars, one a point: throughput, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlm.report.breakdown import KINDS
from mlm.report.points import Group
from mlm.report.rows import Row
from mlm.report.style import PALETTE, WHISKER, WIDTH, Picture, drawing, picture
from mlm.report.words import count, flops_unit, shorten, significant, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ON = PALETTE["on-colour"][0]
_KIND_COLOURS = ("blue", "orange", "green", "purple", "grey")
_LABEL = 44
"""Characters of a point's name beside its bar."""
_NARROWEST_NAMED_SHARE = 0.07
"""Of the widest bar; a narrower segment has no room for its percentage."""


def throughput(group: Group, rows: Sequence[Row], slug: str) -> Picture | None:
    """The whole job's model FLOP/s of each point, and its tokens/s in words."""
    measured = [(row, row.pflops, row.tokens_per_s) for row in rows if row.pflops and row.tokens_per_s]
    if not measured:
        return None
    size, unit = flops_unit([rate.middle * 1e15 for _, rate, _ in measured])
    with drawing(WIDTH, 0.9 + 0.34 * len(measured)) as (figure, axes):
        for y, (_, rate, tokens) in enumerate(measured):
            found = rate.times(1e15 / size)
            axes.barh(y, found.middle, height=0.62, color=PALETTE["blue"][0])
            axes.errorbar(found.middle, y, xerr=found.whiskers, **WHISKER)
            text = f"{significant(found.middle)} {unit} · {significant(tokens.middle)} tokens/s"
            _beside(axes, found.high, y, text)
        _names(axes, [row.label for row, _, _ in measured])
        _room_at_the_right(axes, max(rate.high * 1e15 / size for _, rate, _ in measured), 0.62)
        axes.set_xlabel(f"model FLOPs of the whole job, {unit}")
        caption = "Throughput at the median step time; whiskers are the quartiles of the timing windows."
        return picture(figure, slug=slug, heading="Throughput", caption=caption)


def where_time_goes(group: Group, rows: Sequence[Row], slug: str) -> Picture | None:
    """Stacked bars: the kinds of time in a profiled step of each point."""
    profiled = [(row, b) for row in rows if (b := row.point.breakdown) is not None]
    if not profiled:
        return None
    size, unit = time_unit([b.step_s for _, b in profiled])
    longest = max(b.step_s for _, b in profiled) / size
    with drawing(WIDTH, 1.25 + 0.36 * len(profiled)) as (figure, axes):
        for y, (_, breakdown) in enumerate(profiled):
            left = 0.0
            for (kind, words), colour in zip(KINDS.items(), _KIND_COLOURS, strict=True):
                seconds = breakdown.seconds[kind] / size
                bar = axes.barh(y, seconds, height=0.62, left=left, color=PALETTE[colour][0])
                if y == 0:
                    bar.set_label(words)
                if seconds > _NARROWEST_NAMED_SHARE * longest:
                    share = f"{100 * seconds * size / breakdown.step_s:.0f} %"
                    axes.text(left + seconds / 2, y, share, ha="center", va="center", color=_ON, fontsize=8)
                left += seconds
            _beside(axes, left, y, f"{significant(left)} {unit}")
        _names(axes, [row.label for row, _ in profiled])
        _room_at_the_right(axes, longest, 0.16)
        axes.set_xlabel(f"{unit} of a profiled step, mean over ranks")
        figure.legend(loc="outside lower center", ncols=len(KINDS), columnspacing=1.4)
        without = [row.label for row in rows if row.point.breakdown is None]
        missing = f" Not profiled: {', '.join(without)}." if without else ""
        steps = sum(b.steps for _, b in profiled)
        caption = (
            f"Where the time of a step goes, from {count(steps, 'profiled step')} that no other figure "
            f"counts. During exposed communication its rank computes nothing.{missing}"
        )
        return picture(figure, slug=slug, heading="Where the time goes", caption=caption)


def _beside(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=8)


def _names(axes: Axes, labels: Sequence[str]) -> None:
    """Names of horizontal bars, the first on top."""
    axes.set_yticks(range(len(labels)), [shorten(label, _LABEL) for label in labels])
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _room_at_the_right(axes: Axes, longest: float, share: float) -> None:
    """Space for what is written beside the longest bar, as a share of its length."""
    axes.set_xlim(0, longest * (1 + share))

"""Figures with lines: speed-up against the ideal, loss, and the throughput of one run over its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mlm.report.efficiency import Work
from mlm.report.history import Record
from mlm.report.points import Group, Point
from mlm.report.rows import Relative, Row
from mlm.report.run import Run
from mlm.report.style import PALETTE, PLATE, WIDTH, Picture, curve, drawing, picture
from mlm.report.windows import Window
from mlm.report.words import flops_unit, percent, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MUTED, _BLUE, _GREY = (PALETTE[name][0] for name in ("muted", "blue", "grey"))
MOST_POINTS = 400
"""Of a curve: what a figure of this width can show."""
MOST_CURVES = 24
"""Of a figure of losses: as many as there are colours and dashes."""

Measured = tuple[Row, Relative, Work]


def speed_up(group: Group, rows: Sequence[Row], slug: str) -> Picture | None:
    """Speed-up over processes, the ideal as a line, the paper's points beside."""
    measured = [(row, row.relative, row.work) for row in rows if row.relative and row.work]
    if len(measured) < 2 or group.baseline is None or group.baseline.work is None:
        return None
    base = group.baseline.work.processes
    counts = sorted({work.processes for _, _, work in measured})
    with drawing(WIDTH * 0.8, 4.0) as (figure, axes):
        axes.plot(counts, [n / base for n in counts], color=_MUTED, linewidth=1, dashes=(4, 3), label="ideal")
        paper = _paper_points(group, rows)
        for number, (name, members) in enumerate(_series(group, measured)):
            found = sorted(((work.processes, relative) for _, relative, work in members), key=lambda e: e[0])
            ranges = [relative.speed_up for _, relative in found]
            look = curve(number)
            axes.errorbar(
                [n for n, _ in found],
                [r.middle for r in ranges],
                [[r.middle - r.low for r in ranges], [r.high - r.middle for r in ranges]],
                marker="o",
                ms=5,
                capsize=3,
                label="ours" if name is None else f"ours, {name}",
                **look,
            )
            for n, relative in found:
                text = f"{relative.speed_up.middle:.2f} ({percent(relative.of_speed_up.middle, 0)})"
                # Ours above the point and the paper's curve below it, or the other way round.
                is_above = number == 0 and relative.speed_up.middle >= paper.get(n, 0)
                axes.annotate(
                    text,
                    (n, relative.speed_up.middle),
                    (0, 9 if is_above else -17),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                    color=look["color"],
                    bbox=PLATE,
                )
        if paper:
            assert group.published is not None, "a published value has its table"
            axes.plot(
                list(paper.keys()),
                list(paper.values()),
                color=_MUTED,
                marker="s",
                markersize=5,
                markerfacecolor="none",
                linestyle=":",
                linewidth=1,
                label=f"the paper, on {group.published.machine}",
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(counts, [str(n) for n in counts])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.margins(x=0.12, y=0.12)
        axes.set_xlabel("processes")
        axes.set_ylabel(f"times the throughput of {shorten(group.baseline.label, 36)}")
        figure.legend(loc="outside lower center", ncols=2)
        caption = (
            f"Speed-up of the same model on more processes against {group.baseline.label}; in brackets its "
            "share of the ideal. Whiskers are the quartiles of the timing windows."
        )
        if paper and group.published:
            caption += f" Squares: {group.published.caption}; {group.published.machine}."
        return picture(figure, slug=slug, heading="Speed-up", caption=caption)


def loss(points: Sequence[Point], slug: str) -> Picture | None:
    """Training and validation loss over steps, one colour per point; of repeats the first one."""
    shown = [(point, point.readable[0]) for point in points if point.readable][:MOST_CURVES]
    if not shown:
        return None
    left_out = sum(bool(point.readable) for point in points) - len(shown)
    longest = 0
    with drawing(WIDTH, 3.6 + 0.16 * (len(shown) // 2)) as (figure, axes):
        handles, labels, dotted = [], [], None
        for number, (point, run) in enumerate(shown):
            look = curve(number)
            steps, losses, together = thinned(run.train)
            longest = max(longest, together)
            (line,) = axes.plot(steps, losses, linewidth=1.2, **look)
            handles.append(line)
            labels.append(shorten(point.label, 46))
            if run.valid:
                steps, losses, _ = thinned(run.valid)
                (dotted,) = axes.plot(
                    steps, losses, color=look["color"], linestyle=(0, (1, 2)), marker="o", ms=4, linewidth=1
                )
        if dotted is not None:
            handles.append(dotted)
            labels.append("dots: validation")
        over_step_axis(axes)
        axes.set_ylabel(f"loss, {loss_unit([run for _, run in shown])}")
        axes.margins(x=0.02)
        if len(shown) > 1 or any(run.valid for _, run in shown):
            figure.legend(handles, labels, loc="outside lower center", ncols=1 if len(shown) == 1 else 2)
        caption = "Training loss" + (" of each point's first run" if len(shown) > 1 else "")
        caption += ", and dots for validation." if dotted is not None else "."
        if longest > 1:
            caption += f" Long curves are thinned: a training point is the mean of up to {longest:,} steps."
        if left_out:
            caption += f" The last {left_out} points are not drawn."
        return picture(figure, slug=slug, heading="Loss", caption=caption)


def over_steps(point: Point, slug: str) -> Picture | None:
    """Throughput of one run by timing window, over its steps: what a single bar cannot show."""
    run = point.runs[0] if point.runs else None
    every = run.windows(0) if run else []
    if run is None or len(every) < 2:
        return None
    flops = run.work.flops
    size, unit = flops_unit([flops / w.step_time_s for w in every])
    shown, together = _merged(every)
    with drawing(WIDTH, 2.9) as (figure, axes):
        axes.hlines(
            [flops / w.step_time_s / size for w in shown],
            [w.first_step - 0.5 for w in shown],
            [w.last_step + 0.5 for w in shown],
            colors=[_BLUE if w.first_step > point.warmup_steps else _GREY for w in shown],
            linewidth=3,
        )
        axes.axvspan(0.5, point.warmup_steps + 0.5, color=PALETTE["grid"][0], alpha=0.5, linewidth=0)
        axes.set_ylim(0, 1.06 * max(flops / w.step_time_s / size for w in shown))
        over_step_axis(axes)
        axes.set_ylabel(f"whole job, {unit}")
        caption = (
            f"Throughput by timing window. Windows with a step of the warm-up ({point.warmup_steps} steps, "
            "shaded) are grey and count in no figure."
        )
        if together > 1:
            caption += f" Each bar stands for up to {together:,} windows."
        return picture(figure, slug=slug, heading="Throughput over steps", caption=caption)


def loss_unit(runs: Sequence[Run]) -> str:
    """Of their losses: BERT's adds that of a sample to that of a token."""
    by_token = all(run.config.objective.name == "next_token" for run in runs)
    return "nats per token" if by_token else "nats"


def thinned(
    records: Sequence[Record], of: str = "loss", most: int = MOST_POINTS
) -> tuple[list[float], list[float], int]:
    """Steps and values of at most `most` points, and of how many records each is the mean."""
    together = -(-len(records) // most)
    steps, losses = [], []
    for start in range(0, len(records), together or 1):
        chunk = records[start : start + together]
        steps.append(sum(float(r["step"]) for r in chunk) / len(chunk))
        losses.append(sum(float(r[of]) for r in chunk) / len(chunk))
    return steps, losses, together


def over_step_axis(axes: Axes) -> None:
    """Steps from left to right."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value == round(value) else "")


def _merged(every: Sequence[Window]) -> tuple[list[Window], int]:
    """At most MOST_POINTS windows, each in place of so many that follow each other."""
    together = -(-len(every) // MOST_POINTS)
    chunks = [every[start : start + together] for start in range(0, len(every), together)]
    return [_as_one(chunk) for chunk in chunks], together


def _as_one(chunk: Sequence[Window]) -> Window:
    steps = sum(w.steps for w in chunk)
    time_s = sum(w.steps * w.step_time_s for w in chunk) / steps
    return replace(chunk[0], last_step=chunk[-1].last_step, steps=steps, step_time_s=time_s)


def _series(group: Group, measured: Sequence[Measured]) -> list[tuple[str | None, list[Measured]]]:
    """The points by series; the baseline, which may stand in one of them, begins each."""
    baseline = [entry for entry in measured if entry[0].is_baseline]
    names = dict.fromkeys(row.point.series for row, _, _ in measured)
    found = [(name, [e for e in measured if e[0].point.series == name]) for name in names]
    return [
        (name, members if any(row.is_baseline for row, _, _ in members) else baseline + members)
        for name, members in found
    ]


def _paper_points(group: Group, rows: Sequence[Row]) -> dict[int, float]:
    """Speed-up by processes, where the paper's table is one of speed-ups."""
    found = [
        (row.work.processes, row.published)
        for row in rows
        if row.published is not None and row.published_quantity == "speed-up" and row.work is not None
    ]
    return dict(sorted(found))

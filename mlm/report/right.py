"""The figure of what a run of masked_lm gets right: masked tokens, and the order of two segments."""

from __future__ import annotations

from mlm.report.curves import over_step_axis, thinned
from mlm.report.points import Point
from mlm.report.style import PALETTE, WIDTH, Picture, curve, drawing, picture

_MUTED = PALETTE["muted"][0]
_POINTS = 80
"""Of a curve of training: of single steps, whose batches are small, one would see the noise alone."""
_KINDS = {"masked_accuracy": "masked tokens", "order_accuracy": "order of segments"}


def right(point: Point, slug: str) -> Picture | None:
    """Shares right over the steps of a point's first run, and what guessing has; None where none is known."""
    run = point.readable[0] if point.readable else None
    if run is None or any(record.get(kind) is None for record in run.train for kind in _KINDS):
        return None
    with drawing(WIDTH, 3.6) as (figure, axes):
        longest = 0
        for number, (kind, label) in enumerate(_KINDS.items()):
            look = curve(number)
            steps, shares, together = thinned(run.train, kind, _POINTS)
            longest = max(longest, together)
            axes.plot(steps, [100 * share for share in shares], linewidth=0.8, alpha=0.45, **look)
            held_out = [record for record in run.valid if record.get(kind) is not None]
            steps, shares, _ = thinned(held_out, kind)
            axes.plot(
                steps, [100 * share for share in shares], marker="o", ms=4, linewidth=1.2, label=label, **look
            )
        guesses = {"tossing a coin": 50.0}
        if run.valid and (known := run.valid[-1].get("unigram_accuracy")) is not None:
            guesses["always the most frequent token"] = 100 * float(known)
        for number, (label, share) in enumerate(guesses.items()):
            dashes = ((1, 2), (5, 3))[number]
            axes.axhline(share, color=_MUTED, linewidth=1, dashes=dashes, label=f"{label}, {share:.1f} %")
        over_step_axis(axes)
        axes.set_ylabel("right, %")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        figure.legend(loc="outside lower center", ncols=2)
        caption = "What is predicted right: lines for training, dots for validation."
        if longest > 1:
            caption += f" A point of training is the mean of up to {longest:,} steps."
        return picture(figure, slug=slug, heading="Right predictions", caption=caption)

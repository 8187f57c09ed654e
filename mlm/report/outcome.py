"""What training came to: a run's last validation, its gradients, what it skipped; no figure of speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlm.report.history import Record
from mlm.report.run import Run

FIGURES: Mapping[str, str] = {
    "loss": "loss",
    "masked_loss": "masked-token loss",
    "masked_accuracy": "masked tokens right",
    "order_loss": "order loss",
    "order_accuracy": "orders right",
}
"""What a validation may have: name in metrics.jsonl -> words; losses are nats, the others shares."""
PARTS = 20
"""Of a run, for whether its loss has risen: each part's mean is a loss without the noise of single steps."""


@dataclass(frozen=True)
class Outcome:
    """The end of one run, or the means over the runs of a point."""

    valid: Mapping[str, float]
    """Of FIGURES those of the validation after the last step; {} when there is none."""
    last_step: int
    """The last one whose loss is a number; 0 when none is."""
    largest_norm: float | None
    """Of the gradient before clipping, over all steps where it is finite."""
    rise: float | None
    """Training loss of the last of PARTS parts of the steps above that of the lowest part."""
    spikes: float
    skipped: float
    """Steps that moved nothing, because loss or gradients were not finite."""


def outcome(run: Run, figure: str) -> Outcome:
    """figure: what rise is of."""
    finite = [record for record in run.train if math.isfinite(record["loss"])]
    norms = [n for record in run.train if (n := record.get("grad_norm")) is not None and math.isfinite(n)]
    last = run.valid[-1] if run.valid and run.is_finished else {}
    return Outcome(
        valid={name: last[name] for name in FIGURES if name in last and last["step"] == run.last_step},
        last_step=int(finite[-1]["step"]) if finite else 0,
        largest_norm=max(norms, default=None),
        rise=rise([record[figure] for record in finite if figure in record]),
        spikes=len(run.spikes),
        skipped=sum(record.get("skipped") is not None for record in run.train),
    )


def rise(losses: Sequence[float]) -> float | None:
    """Mean of the last of PARTS equal parts minus the lowest such mean; None for fewer losses than parts."""
    if len(losses) < PARTS:
        return None
    edges = [len(losses) * part // PARTS for part in range(PARTS + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(edges)]
    return means[-1] - min(means)


def together(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The means of several runs; the largest norm is the largest of all. None for no run."""
    if not outcomes:
        return None
    names = [name for name in FIGURES if all(name in each.valid for each in outcomes)]
    norms = [each.largest_norm for each in outcomes if each.largest_norm is not None]
    rises = [each.rise for each in outcomes if each.rise is not None]
    return Outcome(
        valid={name: _mean([each.valid[name] for each in outcomes]) for name in names},
        last_step=min(each.last_step for each in outcomes),
        largest_norm=max(norms, default=None),
        rise=_mean(rises) if rises else None,
        spikes=_mean([each.spikes for each in outcomes]),
        skipped=_mean([each.skipped for each in outcomes]),
    )


def series(run: Run, figure: str, kind: str) -> list[Record]:
    """The run's train or valid records in which the figure is a finite number, as records of a loss."""
    records = run.train if kind == "train" else run.valid
    found = [{"step": r["step"], "loss": r.get(figure)} for r in records]
    return [r for r in found if isinstance(r["loss"], (int, float)) and math.isfinite(r["loss"])]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

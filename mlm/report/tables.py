"""table.csv and runs.csv: every figure at full precision, its unit in the column's name."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlm.report.breakdown import KINDS
from mlm.report.outcome import FIGURES
from mlm.report.points import Attempt, Group, Point
from mlm.report.rows import Range, Row

Column = Callable[[Row], Any]


def _work(name: str) -> Column:
    return lambda row: None if row.work is None else getattr(row.work, name)


def _timing(name: str) -> Column:
    return lambda row: None if row.timing is None else getattr(row.timing, name)


def _layout(name: str) -> Column:
    return lambda row: getattr(row.point.readable[0].config, name) if row.point.readable else None


def _relative(name: str) -> Callable[[Row], Range | None]:
    return lambda row: None if row.relative is None else getattr(row.relative, name)


def _part(of: Callable[[Row], Range | None], part: str) -> Column:
    def value(row: Row) -> float | None:
        found = of(row)
        return None if found is None else getattr(found, part)

    return value


def _spread(name: str, of: Callable[[Row], Range | None]) -> dict[str, Column]:
    """A figure and where it lies at the quartiles of the step time."""
    return {
        name: _part(of, "middle"),
        f"{name}_low": _part(of, "low"),
        f"{name}_high": _part(of, "high"),
    }


def _published(quantity: str) -> Column:
    return lambda row: row.published if row.published_quantity == quantity else None


def _kind(kind: str) -> Column:
    return lambda row: None if row.point.breakdown is None else row.point.breakdown.seconds[kind]


def _outcome(name: str) -> Column:
    return lambda row: None if row.outcome is None else getattr(row.outcome, name)


def _valid(name: str) -> Column:
    return lambda row: None if row.outcome is None else row.outcome.valid.get(name)


def _run_mean(pick: Callable[[Sequence[float]], float]) -> Column:
    return lambda row: None if row.timing is None else pick(row.timing.run_means_s)


COLUMNS: Mapping[str, Column] = {
    "point": lambda row: row.label,
    "series": lambda row: row.point.series,
    "status": lambda row: row.point.status,
    "is_baseline": lambda row: row.is_baseline,
    "processes": _work("processes"),
    "tp": _layout("tp"),
    "pp": _layout("pp"),
    "dp": _layout("dp"),
    "parameters": _work("parameters"),
    "global_batch_samples": _work("samples"),
    "tokens_per_step": _work("tokens"),
    "model_flops_per_step": _work("flops"),
    "runs": lambda row: None if row.timing is None else len(row.timing.run_means_s),
    "windows": _timing("windows"),
    "step_time_median_s": _timing("median_s"),
    "step_time_q1_s": _timing("q1_s"),
    "step_time_q3_s": _timing("q3_s"),
    "step_time_spread": _timing("spread"),
    "step_time_fastest_run_s": _run_mean(min),
    "step_time_slowest_run_s": _run_mean(max),
    **_spread("tokens_per_s", lambda row: row.tokens_per_s),
    **_spread("tflops_per_device", lambda row: row.tflops_per_device),
    **_spread("pflops", lambda row: row.pflops),
    **_spread("efficiency_by_flops", _relative("by_flops")),
    **_spread("efficiency_by_parameters", _relative("by_parameters")),
    **_spread("speed_up", _relative("speed_up")),
    "efficiency_of_speed_up": _part(_relative("of_speed_up"), "middle"),
    "mfu": lambda row: row.mfu,
    "hfu": lambda row: row.hfu,
    "paper_efficiency": _published("efficiency"),
    "paper_speed_up": _published("speed-up"),
    **{f"profiled_{kind}": _kind(kind) for kind in KINDS},
    **{f"valid_{name}": _valid(name) for name in FIGURES},
    "train_rise": _outcome("rise"),
    "largest_grad_norm": _outcome("largest_norm"),
    "spikes": _outcome("spikes"),
    "skipped_steps": _outcome("skipped"),
}
"""Column -> its value; shares are fractions of 1, low and high belong to the quartiles of the step time."""

RUN_COLUMNS: Mapping[str, Callable[[Point, Attempt], Any]] = {
    "point": lambda point, attempt: point.label,
    "run": lambda point, attempt: str(attempt.folder),
    "status": lambda point, attempt: attempt.status,
    "reason": lambda point, attempt: attempt.reason,
    "counts": lambda point, attempt: attempt.counts,
    "steps": lambda point, attempt: attempt.run.last_step if attempt.run else None,
    "warmup_steps": lambda point, attempt: point.warmup_steps,
    "windows": lambda point, attempt: len(attempt.run.windows(point.warmup_steps)) if attempt.run else None,
    "step_time_mean_s": lambda point, attempt: _mean_of_run(point, attempt),
    "last_train_loss": lambda point, attempt: _last(attempt.run.train) if attempt.run else None,
    "last_valid_loss": lambda point, attempt: _last(attempt.run.valid) if attempt.run else None,
    "started": lambda point, attempt: attempt.run.environment.get("started") if attempt.run else None,
    "command": lambda point, attempt: shlex.join(attempt.command),
}


def points_csv(groups: Sequence[tuple[Group, Sequence[Row]]]) -> str:
    """One line per point."""
    lines = [
        [group.name, *(value(row) for value in COLUMNS.values())] for group, rows in groups for row in rows
    ]
    return _csv(["study", *COLUMNS], lines)


def runs_csv(groups: Sequence[Group]) -> str:
    """One line per run, those without figures too."""
    lines = [
        [group.name, *(value(point, attempt) for value in RUN_COLUMNS.values())]
        for group in groups
        for point in group.points
        for attempt in point.attempts
    ]
    return _csv(["study", *RUN_COLUMNS], lines)


def _mean_of_run(point: Point, attempt: Attempt) -> float | None:
    found = attempt.run.windows(point.warmup_steps) if attempt.run else []
    return sum(w.steps * w.step_time_s for w in found) / sum(w.steps for w in found) if found else None


def _last(records: Sequence[Mapping[str, Any]]) -> Any:
    return records[-1]["loss"] if records else None


def _csv(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([[_plain(value) for value in line] for line in lines])
    return out.getvalue()


def _plain(value: Any) -> Any:
    """true and false as everywhere else; an empty cell for what is not known."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value

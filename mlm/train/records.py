"""A training step as metrics.jsonl has it."""

from __future__ import annotations

from typing import Any

from mlm.checkpoint.state import TrainingState
from mlm.train.guard import Verdict
from mlm.train.loggers import Metrics
from mlm.train.metrics import Speed, StepRecord
from mlm.train.setup import Run


def write_step(
    metrics: Metrics, record: StepRecord, speed: Speed | None, state: TrainingState, run: Run
) -> None:
    """speed: of the record's window; None for a profiled step, whose time is not training's.

    state: after the window's last step, from which the position after the record's is counted back.
    """
    later = state.step - record.step
    values: dict[str, Any] = {
        "loss": record.loss,
        **dict(zip(run.objective.figures, record.figures, strict=True)),
        "lr": record.lr,
        "grad_norm": record.grad_norm,
        "skipped": None if record.verdict is Verdict.UPDATED else record.verdict.name.lower(),
        "consumed_samples": state.consumed_samples - later * run.config.train.global_batch_size,
        "consumed_tokens": state.consumed_tokens - later * run.objective.tokens_per_step,
        "window_steps": speed and speed.steps,
        "step_time_s": speed and speed.step_time_s,
        "tokens_per_s": speed and speed.tokens_per_s,
        "throughput_pflops": speed and speed.throughput_pflops,
        "mfu": speed and speed.mfu,
        "hfu": speed and speed.hfu,
    }
    if record.loss_scale is not None:
        values["loss_scale"] = record.loss_scale
    if speed is None:
        values["profiled"] = True
    metrics.write("train", record.step, values)

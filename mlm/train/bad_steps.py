"""Steps that were skipped: what is said of them, and the end of a run that has too many in a row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from mlm.checkpoint.state import TrainingState
from mlm.errors import DivergedError, TrainError
from mlm.train.diagnose import diagnose
from mlm.train.guard import Verdict
from mlm.train.log import logger
from mlm.train.metrics import StepRecord
from mlm.train.setup import Run


class BadSteps:
    """Reads the verdicts of a window's steps, alike on all ranks."""

    def __init__(self, run: Run):
        self.run = run
        self._in_a_row: list[tuple[StepRecord, int]] = []  # with the samples consumed before it

    def read(self, records: Sequence[StepRecord], state: TrainingState) -> None:
        """Log what was skipped. state: after the last of the records.

        Raises TrainError, on all ranks together, when more than train.max_bad_steps in a row were not finite
        (DivergedError when the first of them is so again, from parameters that are finite);
        RUN/bad_step_N.json then says what is known of the first of them. Collective when it does.
        """
        overflows = [record for record in records if record.verdict is Verdict.OVERFLOW]
        if overflows and self.run.is_first:
            first, last = overflows[0], overflows[-1]
            steps = f"step {first.step}" if first is last else f"{len(overflows)} steps up to {last.step}"
            logger.info(f"{steps}: fp16 gradients overflowed, skipped at loss scale {last.loss_scale:,g}")
        for record in records:
            if record.verdict is Verdict.UPDATED:
                self._in_a_row.clear()
            if record.verdict is not Verdict.NOT_FINITE:
                continue
            later = state.step - record.step + 1
            consumed = state.consumed_samples - later * self.run.config.train.global_batch_size
            self._in_a_row.append((record, consumed))
            if len(self._in_a_row) > self.run.config.train.max_bad_steps:
                self._end(*self._in_a_row[0], state)
            if self.run.is_first:
                logger.warning(f"{_said(record)}: the step is skipped, the parameters are as they were")

    @property
    def in_a_row(self) -> int:
        """Steps that were not finite since the last update."""
        return len(self._in_a_row)

    def _end(self, record: StepRecord, consumed: int, state: TrainingState) -> None:
        """record: the first step of the row; no parameter has moved since."""
        run, count = self.run, len(self._in_a_row)
        found = gathered(diagnose(run, record.step, consumed, record.loss_scale), run.mesh.world_size)
        bad = [rank for rank in found if rank["first_bad"] is not None]
        first = min(bad, key=lambda rank: rank["first_bad"]["look"], default=None)
        path = run.run_dir / f"bad_step_{record.step}.json"
        if run.is_first:
            known = {
                "step": record.step,
                "loss": str(record.loss),
                "grad_norm": str(record.grad_norm),
                "lr": record.lr,
                "loss_scale": record.loss_scale,
                "bad_steps_in_a_row": count,
                "first_sample": consumed,
                "samples": run.config.train.global_batch_size,
                "parameters_after_updates": state.updates,
                "reproduced": first is not None,
                "ranks": found,
            }
            path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        # Nobody ends before the file is there: the first rank to fail has the others ended.
        gathered(None, run.mesh.world_size)
        others = f", as were {count - 1} more in a row" if count > 1 else ""
        remedy = "lower optim.lr or lengthen optim.warmup_steps"
        if record.loss_scale is not None:
            remedy += ", or use precision=bf16 or fp32"
        allowed = run.config.train.max_bad_steps
        # What goes wrong in the arithmetic and does so again is the recipe's doing. A parameter, which no bad
        # step has touched, is not made so by a finite update, nor is what cannot be repeated.
        diverged = first is not None and not first["first_bad"]["what"].startswith("parameter ")
        raise (DivergedError if diverged else TrainError)(
            f"{_said(record)}{others}, and train.max_bad_steps={allowed} allows {allowed or 'none'}; "
            f"{_cause(first)}; {path.name} beside metrics.jsonl says more: {remedy}"
        )


def _said(record: StepRecord) -> str:
    scale = "" if record.loss_scale is None else f" at loss scale {record.loss_scale:,g}"
    return f"step {record.step}: loss={record.loss:g} grad_norm={record.grad_norm:g}{scale} is not finite"


def _cause(rank: dict[str, Any] | None) -> str:
    if rank is None:
        return "run again, the step was finite, so a device, its memory or a transfer is suspect"
    first = rank["first_bad"]
    batch = "" if first["micro_batch"] is None else f", micro batch {first['micro_batch']}"
    return f"first to go wrong was the {first['what']} (rank {rank['rank']}{batch})"


def gathered(value: Any, world_size: int) -> list[Any]:
    """Every rank's value, on every rank."""
    if world_size == 1:
        return [value]
    values: list[Any] = [None] * world_size
    dist.all_gather_object(values, value)
    return values

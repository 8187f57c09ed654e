"""What follows the last step: the checkpoint, the final figures, a sample of text, summary.json."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlm.errors import CheckpointError
from mlm.files import write_whole
from mlm.launch.stopped import Stopped
from mlm.parallel.device import peak_memory_bytes
from mlm.train.log import logger
from mlm.train.metrics import Speed, readable_flops, readable_time
from mlm.train.objectives import ValidationResult
from mlm.train.objectives.base import SAMPLE_TEMPERATURE
from mlm.train.report import time_table
from mlm.train.setup import Run
from mlm.train.watchdog import watch

if TYPE_CHECKING:
    from mlm.train.loop import Trainer


def finish(trainer: Trainer) -> None:
    """Save, evaluate and sum up after the last step, unless it is agreed to stop; collective over all ranks.

    Raises CheckpointError, when all else is done, if there is no checkpoint where one was wanted.
    """
    run, config = trainer.run, trainer.run.config.train
    trainer.display.close()
    final: ValidationResult | None = None
    # First the checkpoint: nothing that follows can then cost the run its result.
    if config.save:
        watch("the checkpoint at the end")
        trainer.checkpoints.finish(trainer.state)
    else:
        trainer.checkpoints.close()
    if config.final_eval and not trainer.stop.agreed():
        watch("the validation at the end")
        final = trainer.validate(config.final_eval_samples)
    if trainer.stop.agreed():
        # What is missing is done by the attempt that goes on from the last step.
        return
    watch("the evaluation at the end")
    evaluated = trainer.evaluations(trainer.metrics, trainer.state.step)
    times = trainer.profiler.write()
    if times is not None and run.is_first:
        time_table(times, trainer.profiler.steps, trainer.speeds)
    text = run.objective.sample_text(run.model)
    if run.is_first:
        _sum_up(trainer, final, evaluated, text)
    if config.save and trainer.checkpoints.failure is not None:
        raise CheckpointError(trainer.checkpoints.failure)


def leave_resumable(trainer: Trainer) -> None:
    """Save where training was stopped and say how it goes on; collective over all ranks.

    Raises CheckpointError when that cannot be written; the newest checkpoint is then an earlier one.
    """
    run, state, checkpoints = trainer.run, trainer.state, trainer.checkpoints
    reason = trainer.stop.reason
    assert reason is not None, "somebody has asked to stop"
    trainer.display.close()
    if run.is_first:
        logger.info(f"{reason}: stopping after step {state.step:,}")
    watch(f"the checkpoint after step {state.step}")
    if state.step > 0:
        checkpoints.finish(state)
    if checkpoints.failure is not None:
        raise CheckpointError(f"{reason}: the run could not be saved: {checkpoints.failure}")
    if not run.is_first:
        return
    newest = None if checkpoints.newest is None else str(checkpoints.newest)
    stopped = Stopped(run.attempt, state.step, reason, newest)
    stopped.write(run.run_dir)
    trainer.metrics.write("stop", state.step, {"reason": reason, "checkpoint": stopped.checkpoint})
    logger.info(f"the run goes on with resume=auto run_dir={run.run_dir}")


def _sum_up(
    trainer: Trainer, final: ValidationResult | None, evaluated: list[dict[str, Any]], text: str | None
) -> None:
    """The last words, and summary.json."""
    run, state, newest = trainer.run, trainer.state, trainer.checkpoints.newest
    if text is not None:
        logger.info(f"a sample, temperature {SAMPLE_TEMPERATURE}:\n{_printable(text)}\n")
    lines, conclusion = run.objective.conclude(final)
    for line in lines:
        logger.info(line)
    best = trainer.checkpoints.best
    if best is not None:
        logger.info(f"best: {best.figure} {best.value:.4f} at step {best.step:,}; checkpoints/best names it")
    speed = _median_speed(trainer.speeds)
    if speed is not None:
        mfu = "peak unknown" if speed.mfu is None else f"MFU {speed.mfu:.1%}"
        logger.info(
            f"{speed.tokens_per_s:,.0f} tokens/s, {readable_flops(speed.throughput_pflops)} on "
            f"{run.mesh.world_size} processes ({mfu}), median of {len(trainer.speeds)} windows after step 1"
        )
    elapsed = time.time() - trainer.started
    summary = {
        "steps": state.step,
        "skipped_steps": state.skipped_steps,
        "consumed_samples": state.consumed_samples,
        "consumed_tokens": state.consumed_tokens,
        "attempt": run.attempt,
        "train_loss": None if trainer.last is None else trainer.last.loss,
        "valid_loss": final.loss if final else None,
        **conclusion,
        "samples_by_dataset": _samples_by_dataset(run, state.consumed_samples),
        "eval": evaluated,
        "median_speed": asdict(speed) if speed else None,
        "flops_per_step": run.flops_per_step,
        "hardware_flops_per_step": run.hardware_flops_per_step,
        "world_size": run.mesh.world_size,
        "first_step_after_s": trainer.first_step_after_s,
        "elapsed_s": elapsed,
        "peak_memory_bytes_rank0": peak_memory_bytes(run.device),
        "checkpoint": None if newest is None else str(newest),
        "best": None if trainer.checkpoints.best is None else asdict(trainer.checkpoints.best),
        "sample": text,
    }
    # Last and whole: a run that has one counts as finished.
    write_whole(run.run_dir / "summary.json", json.dumps(summary, indent=2) + "\n", durable=True)
    logger.info(f"finished {state.step:,} steps in {readable_time(elapsed)}; everything is in {run.run_dir}")


def _median_speed(speeds: list[Speed]) -> Speed | None:
    """The median window: the first holds the warm-up, and a busy moment must not speak for the run."""
    return sorted(speeds, key=lambda s: s.step_time_s)[len(speeds) // 2] if speeds else None


def _samples_by_dataset(run: Run, consumed_samples: int) -> dict[str, int]:
    """Training samples that each dataset has given."""
    counts = run.data.consumed(consumed_samples)
    return {dataset.name: count for dataset, count in zip(run.data.datasets, counts, strict=True)}


def _printable(text: str) -> str:
    """The text without control characters: what a byte model draws must not reprogram the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)

"""The training loop: steps, validation, the checkpoint and the sample at the end."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlm.data.reading import prompt_ids
from mlm.errors import TrainError
from mlm.optim.schedule import learning_rate
from mlm.parallel.device import peak_memory_bytes
from mlm.train.evaluation import Evaluations
from mlm.train.log import logger
from mlm.train.loggers import Metrics
from mlm.train.metrics import Speed, StepRecord, Window, readable_flops, readable_time
from mlm.train.packing import Packing
from mlm.train.profile import StepProfiler
from mlm.train.progress import ProgressDisplay
from mlm.train.report import baselines, startup_table, time_table
from mlm.train.setup import Run
from mlm.train.step import train_step
from mlm.train.trace import DATA, STEP
from mlm.train.validate import ValidationResult, validate_all

SAMPLE_TEMPERATURE = 0.8
"""Of the sample at the end: a little below 1, where a small model's text reads best."""


def train(run: Run, started: float) -> None:
    """Run all steps of the configuration; collective over all ranks.

    started: time.time() at the command, from which the summary counts. Raises TrainError when the loss or
    the gradient norm is no longer finite.
    """
    config = run.config
    if run.is_first:
        startup_table(run)
    evaluations = Evaluations(run)
    metrics = Metrics(run.run_dir, config, asdict_plain(config), enabled=run.is_first)
    display = ProgressDisplay(config.train.steps, enabled=run.is_first)
    window = Window(
        run.mesh,
        run.device,
        tokens=run.tokens_per_step,
        flops=run.flops_per_step,
        hardware_flops=run.hardware_flops_per_step,
        peak=run.peak_flops,
    )
    profiler = StepProfiler(config.profile_steps or [], run.run_dir, run.mesh, run.device)
    speeds: list[Speed] = []
    last: StepRecord | None = None
    first_step_after: float | None = None
    final: ValidationResult | None = None
    try:
        run.replica.train()
        for step in range(1, config.train.steps + 1):
            lr = learning_rate(
                step,
                lr=config.optim.lr,
                min_lr=config.optim.min_lr,
                warmup_steps=config.optim.warmup_steps,
                decay_steps=config.optim.decay_steps or config.train.steps,
            )
            if step in profiler and not profiler.recording:
                profiler.start()
            with profiler.span(f"{STEP} {step}"):
                with profiler.span(DATA):
                    micro_batches, packing = _micro_batches(run, step)
                share, norm = train_step(
                    run.replica,
                    run.optimizer,
                    micro_batches,
                    lr=lr,
                    clip_grad_norm=config.optim.clip_grad_norm,
                    global_batch_tokens=run.tokens_per_step,
                    mesh=run.mesh,
                    autocast=run.autocast,
                    packing=packing,
                    span=profiler.span,
                )
            window.add(step, lr, share, norm)
            display.advance(step)
            validate_now = config.train.eval_interval > 0 and step % config.train.eval_interval == 0
            is_last = step == config.train.steps
            evaluate_now = evaluations.due(step) and not is_last
            pauses = is_last or validate_now or evaluate_now
            if step in profiler:
                # Recorded steps are a window of their own, and nothing else happens between them.
                closes = pauses or step + 1 not in profiler
                if closes:
                    profiler.stop()
            else:
                # The first step is shown alone: it tells that all is well, and warms up what others reuse.
                shown = step == 1 or step % config.train.log_interval == 0
                closes = shown or pauses or step + 1 in profiler
            if closes:
                records, speed = window.close(timed=step not in profiler)
                first_step_after = first_step_after or time.time() - started
                if step > 1 and speed is not None:
                    speeds.append(speed)
                for record in records:
                    _write_step(metrics, run, record, speed)
                _check_finite(records)
                last = records[-1]
                display.step(last, speed)
            if validate_now and not is_last:
                _validate(run, metrics, step, config.train.eval_samples)
            if evaluate_now:
                evaluations(metrics, step)
            if (validate_now and not is_last) or evaluate_now:
                window.restart_clock()
        display.close()
        if config.train.final_eval:
            final = _validate(run, metrics, config.train.steps, config.train.final_eval_samples)
        evaluated = evaluations(metrics, config.train.steps)
    finally:
        display.close()
        metrics.close()
    assert last is not None, "a run has at least one step"
    checkpoint = _save(run) if config.train.save else None
    times = profiler.write()
    if times is not None and run.is_first:
        time_table(times, profiler.steps, speeds)
    text = _sample_text(run) if config.train.sample_tokens > 0 else None
    if run.is_first:
        _finish(run, last, final, evaluated, speeds, started, first_step_after, checkpoint, text)


def _micro_batches(run: Run, step: int) -> tuple[list[Tensor], list[Packing] | None]:
    """This dp rank's samples of one step, ids [micro_batch, seq + 1] each, and the documents in them.

    Sample numbers of step k are (k - 1) * global_batch_size onwards, dealt to dp ranks in runs: which
    samples make a step does not depend on dp or the micro batch.
    """
    batch, micro = run.config.train.global_batch_size, run.config.train.micro_batch_size
    mine = batch // run.mesh.dp.size
    first = (step - 1) * batch + run.mesh.dp.rank * mine
    numbers = np.arange(first, first + mine)
    if not run.resets_at_documents:
        ids = run.train.batch(numbers)  # [mine, seq + 1]
        return _split(run, ids, micro), None
    ids, starts = run.train.packed(numbers)
    data = run.config.data
    packing = [
        Packing.of(part, reset_positions=data.reset_positions, reset_attention=data.reset_attention)
        for part in _split(run, starts, micro)
    ]
    return _split(run, ids, micro), packing


def _split(run: Run, values: NDArray[np.int64], micro: int) -> list[Tensor]:
    return list(torch.from_numpy(values).to(run.device, non_blocking=True).split(micro))


def _write_step(metrics: Metrics, run: Run, record: StepRecord, speed: Speed | None) -> None:
    """speed: of the record's window; None for a profiled step, whose time is not training's."""
    values: dict[str, Any] = {
        "loss": record.loss,
        "lr": record.lr,
        "grad_norm": record.grad_norm,
        "consumed_samples": record.step * run.config.train.global_batch_size,
        "consumed_tokens": record.step * run.tokens_per_step,
        "window_steps": speed and speed.steps,
        "step_time_s": speed and speed.step_time_s,
        "tokens_per_s": speed and speed.tokens_per_s,
        "throughput_pflops": speed and speed.throughput_pflops,
        "mfu": speed and speed.mfu,
        "hfu": speed and speed.hfu,
    }
    if speed is None:
        values["profiled"] = True
    metrics.write("train", record.step, values)


def _check_finite(records: list[StepRecord]) -> None:
    for record in records:
        if not (math.isfinite(record.loss) and math.isfinite(record.grad_norm)):
            raise TrainError(
                f"step {record.step}: loss={record.loss} grad_norm={record.grad_norm:g} is not finite: "
                "lower optim.lr or lengthen optim.warmup_steps; earlier steps are in metrics.jsonl"
            )


def _validate(run: Run, metrics: Metrics, step: int, samples: int | None) -> ValidationResult | None:
    if not run.valid:
        return None
    result = validate_all(
        run.model,
        run.valid,
        samples=samples,
        micro_batch_size=run.config.train.micro_batch_size,
        mesh=run.mesh,
        device=run.device,
        autocast=run.autocast,
        reset_positions=run.config.data.reset_positions,
        reset_attention=run.config.data.reset_attention,
    )
    metrics.write("valid", step, result.values())
    by_dataset = "".join(f", {name} {part.loss:.4f}" for name, _, part in result.parts)
    logger.info(
        f"step {step:>6}  validation loss {result.loss:.4f} nats/token ({result.tokens:,} tokens){by_dataset}"
    )
    return result


def _save(run: Run) -> str:
    # Imported when it is needed: it costs a second at start-up.
    from mlm.checkpoint.save import save_checkpoint

    directory = run.run_dir / "checkpoints" / f"step_{run.config.train.steps}"
    save_checkpoint(directory, run.model, run.optimizer.named_moments(), run.mesh)
    logger.info(f"checkpoint {directory}")
    return str(directory)


def _sample_text(run: Run) -> str:
    from mlm.data.tokenizers import load_tokenizer
    from mlm.generate.sample import sample

    tokenizer = load_tokenizer(run.data.tokenizer, run.run_dir)
    prompt = torch.from_numpy(prompt_ids(run.data)).to(run.device)
    with run.autocast():
        ids = sample(
            run.model,
            prompt,
            new_tokens=run.config.train.sample_tokens,
            seq_length=run.config.model.seq_length,
            vocab_size=min(run.config.model.vocab_size, tokenizer.vocab_size),
            tp=run.mesh.tp,
            temperature=SAMPLE_TEMPERATURE,
            seed=run.config.seed,
        )
    return tokenizer.decode(ids.tolist())


def _finish(
    run: Run,
    last: StepRecord,
    final: ValidationResult | None,
    evaluated: list[dict[str, Any]],
    speeds: list[Speed],
    started: float,
    first_step_after: float | None,
    checkpoint: str | None,
    text: str | None,
) -> None:
    """The last words, and summary.json."""
    if text is not None:
        logger.info(f"a sample, temperature {SAMPLE_TEMPERATURE}:\n{_printable(text)}\n")
    # The median window: the first holds the warm-up, and a busy moment must not speak for the run.
    speed = sorted(speeds, key=lambda s: s.step_time_s)[len(speeds) // 2] if speeds else None
    per_character = _nats_per_character(run, final)
    if final is not None:
        baselines(run, final, per_character)
    if speed is not None:
        mfu = "peak unknown" if speed.mfu is None else f"MFU {speed.mfu:.1%}"
        logger.info(
            f"{speed.tokens_per_s:,.0f} tokens/s, {readable_flops(speed.throughput_pflops)} "
            f"on {run.mesh.world_size} processes ({mfu}), median of {len(speeds)} windows after step 1"
        )
    elapsed = time.time() - started
    summary = {
        "steps": last.step,
        "consumed_tokens": last.step * run.tokens_per_step,
        "train_loss": last.loss,
        "valid_loss": final.loss if final else None,
        "valid_tokens": final.tokens if final else None,
        "valid_nats_per_character": per_character,
        "samples_by_dataset": _samples_by_dataset(run, last.step),
        "eval": evaluated,
        "median_speed": asdict(speed) if speed else None,
        "flops_per_step": run.flops_per_step,
        "hardware_flops_per_step": run.hardware_flops_per_step,
        "world_size": run.mesh.world_size,
        "first_step_after_s": first_step_after,
        "elapsed_s": elapsed,
        "peak_memory_bytes_rank0": peak_memory_bytes(run.device),
        "checkpoint": checkpoint,
        "sample": text,
    }
    (run.run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    logger.info(f"finished {last.step:,} steps in {readable_time(elapsed)}; everything is in {run.run_dir}")


def _samples_by_dataset(run: Run, steps: int) -> dict[str, int]:
    """Training samples that each dataset has given."""
    counts = run.data.consumed(steps * run.config.train.global_batch_size)
    return {dataset.name: count for dataset, count in zip(run.data.datasets, counts, strict=True)}


def _nats_per_character(run: Run, final: ValidationResult | None) -> float | None:
    """The validation loss on the scale of the text's entropies; None when not all of it was scored."""
    characters = run.data.valid_characters_per_token
    if final is None or characters is None or final.tokens != run.data.tokens["valid"] - 1:
        return None
    return final.loss / characters


def _printable(text: str) -> str:
    """The text without control characters: what a byte model draws must not reprogram the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def asdict_plain(config: Any) -> dict[str, Any]:
    """The configuration as JSON-like values, for services that store it."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config), default=lambda value: value.name))
    return plain

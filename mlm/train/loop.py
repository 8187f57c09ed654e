"""The training loop: steps, and what happens between them. What ends a run is in mlm.train.finish."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import Any

from mlm.finetune.files import write_predictions
from mlm.launch.signals import Signals
from mlm.optim.schedule import learning_rate
from mlm.train.bad_steps import BadSteps
from mlm.train.batches import sample_numbers
from mlm.train.checkpoints import Checkpoints
from mlm.train.evaluation import Evaluations
from mlm.train.finish import finish, leave_resumable
from mlm.train.log import logger
from mlm.train.loggers import Metrics
from mlm.train.metrics import Speed, StepRecord, Window
from mlm.train.objectives import ValidationResult
from mlm.train.profile import StepProfiler
from mlm.train.progress import ProgressDisplay
from mlm.train.records import write_step
from mlm.train.report import startup_table
from mlm.train.setup import Run
from mlm.train.spikes import SpikeWatch
from mlm.train.step import train_step
from mlm.train.stop import Stop, TimeLimit
from mlm.train.trace import DATA, STEP
from mlm.train.watchdog import watch


def train(run: Run, started: float, heard: Signals) -> bool:
    """Run the steps of the configuration that are left; False when it was stopped before the last one's end.

    Collective over all ranks. started: time.time() at the command, from which summary and time limit count;
    heard: the signals that ask to stop. Raises TrainError when too many steps in a row had a loss or
    gradients that were not finite, CheckpointError when the checkpoint of the end cannot be written.
    """
    if run.is_first:
        startup_table(run)
    trainer = Trainer(run, started, heard)
    try:
        trainer.say_where_it_begins()
        trainer.steps()
        if trainer.stop.reason is None:
            finish(trainer)
        if trainer.stop.reason is not None:
            leave_resumable(trainer)
        return trainer.stop.reason is None
    finally:
        trainer.close()


class Trainer:
    """One rank's training between its steps; every method is collective over all ranks.

    state: where training is, moved on by each step; only at pauses, when the host has waited for the device,
    is all of it known. last, speeds, first_step_after_s: of this process, for the end.
    """

    def __init__(self, run: Run, started: float, heard: Signals):
        config = run.config
        self.run, self.started = run, started
        self.state = run.state
        self.metrics = Metrics(run.run_dir, config, asdict_plain(config), run.attempt, enabled=run.is_first)
        self.evaluations = Evaluations(run)
        self.checkpoints = Checkpoints(run, self.metrics)
        hours = config.train.max_hours
        limit = None if hours is None else TimeLimit(hours, started)
        self.stop = Stop(run.mesh, heard, limit, timeout_s=config.launch.timeout_s)
        self.bad_steps, self.spikes = BadSteps(run), SpikeWatch()
        self.display = ProgressDisplay(config.train.steps, run.objective.said, enabled=run.is_first)
        self.profiler = StepProfiler(config.profile_steps or [], run.run_dir, run.mesh, run.device)
        self.window = Window(
            run.mesh,
            run.device,
            tokens=run.objective.tokens_per_step,
            flops=run.flops_per_step,
            hardware_flops=run.hardware_flops_per_step,
            peak=run.peak_flops,
        )
        self.speeds: list[Speed] = []
        self.last: StepRecord | None = None
        self.first_step_after_s: float | None = None

    def say_where_it_begins(self) -> None:
        """Log and record what this attempt goes on from; nothing when it is the first, at step 0."""
        run, state = self.run, self.state
        if run.attempt == 1 and run.resumed_from is None:
            return
        # Readers of the metrics take back what earlier attempts have recorded of later steps.
        source = None if run.resumed_from is None else str(run.resumed_from)
        values = {"checkpoint": source, "consumed_samples": state.consumed_samples}
        self.metrics.write("resume", state.step, values)
        who = f"attempt {run.attempt}: "
        if run.resumed_from is None:
            logger.info(f"{who}no checkpoint found, starting at step 0")
        else:
            logger.info(
                f"{who}going on from {run.resumed_from}, step {state.step:,}; the next sample is number "
                f"{state.consumed_samples:,}"
            )

    def steps(self) -> None:
        """Every step up to train.steps, or to the one agreed to be the last, with the pauses after them."""
        self.run.replica.train()
        self.window.restart_clock()
        self.stop.agreed()
        while self.state.step < self.run.config.train.steps and self.stop.reason is None:
            watch(f"step {self.state.step + 1}")
            self.stop.ask(self.checkpoints.seconds)
            self._step()
            self._between_steps()

    def close(self) -> None:
        """Leave nothing open and no save in flight, however the steps ended."""
        self.display.close()
        self.checkpoints.close()
        self.metrics.close()

    def _step(self) -> None:
        """Issue one step to the device, and wait for nothing."""
        run, optim, profiler = self.run, self.run.config.optim, self.profiler
        step = self.state.step + 1
        lr = learning_rate(
            step,
            lr=optim.lr,
            min_lr=optim.min_lr,
            warmup_steps=optim.warmup_steps,
            decay_steps=optim.decay_steps or run.config.train.steps,
            decay=optim.decay,
        )
        if step in profiler and not profiler.recording:
            profiler.start()
        with profiler.span(f"{STEP} {step}"):
            with profiler.span(DATA):
                batches = run.objective.micro_batches(sample_numbers(run, self.state.consumed_samples))
            # What the step draws follows from its number, whatever was drawn or resumed before.
            run.rng.begin_step(step)
            scale = run.guard.loss_scale
            share, norm, figures = train_step(
                run.replica,
                run.optimizer,
                batches,
                lr=lr,
                clip_grad_norm=optim.clip_grad_norm,
                mesh=run.mesh,
                autocast=run.autocast,
                guard=run.guard,
                span=profiler.span,
            )
        self.window.add(step, lr, share, norm, run.guard.verdict, scale, figures)
        self.state = replace(
            self.state,
            step=step,
            consumed_samples=self.state.consumed_samples + run.config.train.global_batch_size,
            consumed_tokens=self.state.consumed_tokens + run.objective.tokens_per_step,
            updates=self.state.updates + 1,
        )
        self.display.advance(step)

    def _between_steps(self) -> None:
        """Close the window and pause for what is due after this step."""
        config, step = self.run.config.train, self.state.step
        is_last = self.stop.answered() or step == config.steps
        # What is due after the last step is the end's to do, in its own way.
        validates = config.eval_interval > 0 and step % config.eval_interval == 0 and not is_last
        evaluates = self.evaluations.due(step) and not is_last
        due = self.checkpoints.due(step) and not is_last
        pauses = validates or evaluates or due
        if self._window_closes(step, pauses or is_last):
            self._close_window()
        self.checkpoints.report()
        if validates:
            watch(f"the validation after step {step}")
            self.validate(config.eval_samples)
            due = due or self.checkpoints.due(step)
        if evaluates:
            watch(f"the evaluation after step {step}")
            self.evaluations(self.metrics, step)
        # Last, so that what a checkpoint has behind it is recorded. Nothing that may be spoilt takes the
        # place of a checkpoint that is not.
        if due and not self.bad_steps.in_a_row:
            watch(f"the checkpoint after step {step}")
            self.checkpoints.save(self.state)
        if pauses:
            self.window.restart_clock()

    def _window_closes(self, step: int, pauses: bool) -> bool:
        if step in self.profiler:
            # Recorded steps are a window of their own, and nothing else happens between them.
            closes = pauses or step + 1 not in self.profiler
            if closes:
                self.profiler.stop()
            return closes
        # The first step is shown alone: it tells that all is well, and warms up what others reuse.
        shown = self.last is None or step % self.run.config.train.log_interval == 0
        return shown or pauses or step + 1 in self.profiler

    def _close_window(self) -> None:
        """Wait for the device and record the steps since the last time."""
        records, speed = self.window.close(timed=self.state.step not in self.profiler)
        if self.last is None:
            self.first_step_after_s = time.time() - self.started
        elif speed is not None:
            self.speeds.append(speed)
        for record in records:
            write_step(self.metrics, record, speed, self.state, self.run)
            self._watch(record)
        self.state = self.run.guard.settled(self.state, [record.verdict for record in records])
        self.bad_steps.read(records, self.state)
        self.last = records[-1]
        self.display.step(self.last, speed)

    def _watch(self, record: StepRecord) -> None:
        spike = self.spikes.see(record.step, record.loss)
        if spike is not None and self.run.is_first:
            values = {"loss": spike.loss, "median": spike.median, "bound": spike.bound}
            self.metrics.write("spike", spike.step, values)
            logger.warning(
                f"step {spike.step:>6}  loss {spike.loss:.4f} has jumped: the steps before had a median of "
                f"{spike.median:.4f}, and up to {spike.bound:.4f} would be their noise"
            )

    def validate(self, samples: int | None) -> ValidationResult | None:
        """Score the first `samples` held-out samples (None: all), log and record it; None without any."""
        result = self.run.objective.validate(self.run.model, samples)
        if result is not None:
            self.metrics.write("valid", self.state.step, result.values)
            logger.info(f"step {self.state.step:>6}  validation {result.said}")
            if result.predictions is not None and self.run.is_first:
                path = self.run.run_dir / "predictions" / f"step_{self.state.step}.jsonl"
                write_predictions(path, result.predictions)
            if result.score is not None and self.run.config.train.save:
                self.checkpoints.scored(self.state.step, *result.score)
        return result


def asdict_plain(config: Any) -> dict[str, Any]:
    """The configuration as JSON-like values, for services that store it."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config), default=lambda value: value.name))
    return plain

"""launch=slurm: one command line for every task, as a step of this allocation or as a new job."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm.errors import MlmError
from mlm.failures import read_failures
from mlm.launch import rundir
from mlm.launch.command import Command, Say
from mlm.launch.preflight import Launch
from mlm.launch.refusal import EXIT_REFUSED
from mlm.launch.resume import AUTO
from mlm.launch.slurm.job import Job, Submitted, see_out, submit, why_cancelled
from mlm.launch.slurm.plan import SlurmPlan
from mlm.launch.slurm.step import StepOutcome, command_line, ended_tasks, run_step, true_code
from mlm.launch.stopped import EXIT_SAVED
from mlm.launch.verdict import is_consequence

_TAIL_LINES = 20


@dataclass
class OnSlurm:
    """A run that nothing speaks against. report: prints what went wrong with workers."""

    command: Command[Any]
    config: Any
    launch: Launch
    overrides: Sequence[str]
    config_dirs: Sequence[Path]
    environment: Mapping[str, str]
    say: Say
    report: Callable[[Path, Mapping[int, int]], None]

    @property
    def plan(self) -> SlurmPlan:
        assert self.launch.slurm is not None, "launch=slurm has a plan"
        return self.launch.slurm

    def in_allocation(self) -> int:
        """Run the tasks as a step and return what became of the run: 0, 1, 2, 75, 130 or 143."""
        folder = self.launch.run_dir
        arguments = self._arguments(folder)
        self.say(command_line(self.plan, arguments))
        outcome = run_step(self.plan, arguments, self.environment, self.config.launch.save_grace_s)
        return self._verdict(outcome, folder)

    def as_new_job(self) -> int:
        """Submit a job and return 0, or, with launch.wait, what became of the run."""
        key, config, plan = self.command.folder_key, self.config, self.plan
        is_new = not self.launch.run_dir.exists()
        folder = self.launch.run_dir
        if not self.launch.goes_on:
            folder = rundir.create(folder, given=getattr(config, key) is not None, key=key)
        job = Job(
            name=self.command.job_name(config),
            command=self.command.spec.name,
            plan=plan,
            launch=config.launch,
            arguments=self._arguments(folder),
            folder=folder,
            layout=f"{plan.tasks} processes: tp {config.tp} x pp {config.pp} x dp {plan.dp}",
            cwd=Path.cwd(),
            can_start_over=getattr(config, "resume", None) == AUTO,
        )
        try:
            submitted = submit(job, self.environment, self.say)
        except MlmError:
            if is_new:
                folder.rmdir()
            raise
        if not config.launch.wait:
            submitted.sbatch.communicate()
            return 0
        return self._see_out(submitted, folder)

    def _see_out(self, submitted: Submitted, folder: Path) -> int:
        outcome, name = see_out(submitted, self.environment), f"job {submitted.job_id}"
        cancelled = why_cancelled(outcome.said)
        if not submitted.log.exists():
            # sbatch calls the end of a job that was cancelled in the queue a success.
            cancelled = f"{name} has ended without having started"
        if cancelled is not None:
            self.say(f"{cancelled}; what was written is in {folder}")
            return 128 + (outcome.signal or signal.SIGTERM)
        code = self._verdict(outcome, folder)
        if code == 0:
            self.say(f"{name} finished; everything is in {folder}")
        elif not read_failures(folder):
            tail = "\n".join(outcome.said[-_TAIL_LINES:])
            self.say(f"{name} ended with code {code}, and its log with\n{tail}")
        return code

    def _verdict(self, outcome: StepOutcome, folder: Path) -> int:
        """The exit code of what ran, said in words when it is a failure."""
        code = true_code(outcome.code, outcome.said, folder)
        if outcome.signal is not None and code not in (0, EXIT_SAVED):
            self.say(f"stopped by {outcome.signal.name}; what was written is in {folder}")
            return 128 + outcome.signal
        if code not in (0, EXIT_REFUSED, EXIT_SAVED):
            self.report(folder, suspects(folder, ended_tasks(outcome.said)))
        return code

    def _arguments(self, folder: Path) -> list[str]:
        """Arguments of `python` for every task: what was typed, joining, with the directory settled."""
        key = self.command.folder_key
        decided = ("launch.mode=", "launch.device=", f"{key}=")
        words = [word for word in self.overrides if not word.startswith(decided)]
        # Decided here: nodes that show no GPU where Slurm has promised some are a fault, no CPU run.
        device = self.plan.device if self.plan.device == "cuda" else self.config.launch.device
        folders = [
            part for directory in self.config_dirs for part in ("--config-dir", str(directory.absolute()))
        ]
        joining = ["launch.mode=join", f"launch.device={device}", f"{key}={folder}"]
        return ["-m", self.command.module, *folders, *words, *joining]


def suspects(folder: Path, ends: Mapping[int, int]) -> dict[int, int]:
    """The tasks whose end may be the cause, not srun's answer to it.

    Where every recorded failure is a lost connection, the cause is a task that died without a word, and srun
    may have heard of it last.
    """
    failures = read_failures(folder)
    if failures and all(is_consequence(failure) for failure in failures):
        return {task: status for task, status in ends.items() if status != -signal.SIGTERM}
    return dict(list(ends.items())[:1])

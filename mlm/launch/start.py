"""From what was typed to running workers: compose, check everything at once, launch, join or show."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlm.config.compose import compose
from mlm.errors import ConfigError, Problem
from mlm.failures import STARTED
from mlm.launch.command import Command
from mlm.launch.machine import Machine, detect_machine
from mlm.launch.preflight import Launch
from mlm.launch.record import write_run_files
from mlm.launch.step import find_step


def start(
    command: Command[Any],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    *,
    typed: Sequence[str],
    environment: Mapping[str, str],
    flaws: Sequence[Problem] = (),
) -> int:
    """Do what the overrides ask for and return the exit code: 0, 1 (a worker failed), 2, 75, 130 or 143.

    typed: the whole command line, for the record. flaws: what it has against itself already, to be refused
    with all the rest. Raises ConfigError, with all problems there are, DataError or LaunchError when nothing
    was started.
    """
    started_s = time.time()
    machine = detect_machine(environment)
    try:
        config = compose(overrides, config_dirs, command.spec)
    except ConfigError as error:
        problems = [*flaws, *error.problems]
        problems += _beyond(command, problems, overrides, config_dirs, machine, environment)
        step = find_step(environment)
        if step is None or step.world_size == 1 or "launch=local" in overrides:
            raise ConfigError(problems) from None
        from mlm.launch.join import refuse_together

        return refuse_together(step, problems, environment, command.spec.name)

    launch, machine_problems = command.preflight(config, machine, environment)
    # With dp inferred, what depends on it can be checked too.
    laid_out = dataclasses.replace(config, dp=launch.dp) if config.dp is None else config
    problems = [*flaws, *command.spec.check(laid_out), *command.file_problems(config)]
    if config.launch.mode == "dry_run":
        if problems:
            raise ConfigError(problems)
        command.show(config, launch, machine, machine_problems, overrides, config_dirs)
        return 0
    problems += machine_problems
    job = _Job(command, config, launch, machine, overrides, typed, environment, started_s)
    if launch.step is not None:
        from mlm.launch.join import join

        # This process becomes a worker, whose time limit counts from here.
        os.environ.setdefault(STARTED, repr(started_s))
        name, worker = command.spec.name, command.worker
        return join(launch.step, config, problems, job.prepare, environment, command=name, worker=worker)
    if problems:
        raise ConfigError(problems)
    return job.locally() if launch.slurm is None else job.on_slurm(config_dirs)


def _beyond(
    command: Command[Any],
    problems: Sequence[Problem],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    machine: Machine,
    environment: Mapping[str, str],
) -> list[Problem]:
    """What files and machine have against the overrides that composition had nothing against."""
    refused = {problem.where for problem in problems}
    sound = [word for word in overrides if word not in refused]
    slips = set(overrides) & refused
    if command.a_slip_misleads and any(
        "." not in word.partition("=")[0] and "/" not in word for word in slips
    ):
        # A group or a degree that was meant and is not known: what follows from its default would mislead.
        return []
    try:
        config = compose(sound, config_dirs, command.spec)
    except ConfigError:
        return []
    _, found = command.preflight(config, machine, environment)
    return [problem for problem in (*command.file_problems(config), *found) if problem not in problems]


@dataclasses.dataclass
class _Job:
    """One job that nothing speaks against."""

    command: Command[Any]
    config: Any
    launch: Launch
    machine: Machine
    overrides: Sequence[str]
    typed: Sequence[str]
    environment: Mapping[str, str]
    started_s: float

    def prepare(self) -> Path:
        """Make the job's directory and fill it; returns its config.yaml.

        Done by one process of the job. Raises ConfigError or DataError.
        """
        for warning in self.launch.warnings:
            self._say(f"warning: {warning}")
        if self.launch.device == "cuda" and self.config.tp > 1:
            self._say("CUDA_DEVICE_MAX_CONNECTIONS=1, so that communication starts in the order it is issued")
        folder, config = self.command.prepare(self.config, self.launch, self._say)
        return write_run_files(
            folder,
            config,
            self.machine,
            overrides=self.overrides,
            command=self.typed,
            environment=self.environment,
        )

    def locally(self) -> int:
        """Start the workers on this machine, wait for them and report what went wrong, if anything did."""
        config_path = self.prepare()
        from mlm.launch.attempts import EXIT_WORKER_FAILED, Attempts
        from mlm.launch.local import worker_environment

        extra = worker_environment(
            self.environment,
            device=self.launch.device,
            tp=self.config.tp,
            threads=self.launch.threads,
            started_s=self.started_s,
        )
        attempts = Attempts(
            self.command,
            self.config,
            self.launch,
            self.typed,
            extra,
            self._say,
            self._tell,
            self._report,
        )
        code = attempts.run(config_path)
        if self.command.is_scratch and code != EXIT_WORKER_FAILED:
            shutil.rmtree(config_path.parent, ignore_errors=True)
        return code

    def on_slurm(self, config_dirs: Sequence[Path]) -> int:
        """Start the tasks of the allocation, or submit a job that does; returns the exit code.

        Raises ConfigError or LaunchError when nothing was started.
        """
        from mlm.launch.slurm.run import OnSlurm

        for warning in self.launch.warnings:
            self._say(f"warning: {warning}")
        run = OnSlurm(
            self.command,
            self.config,
            self.launch,
            self.overrides,
            config_dirs,
            self.environment,
            self._say,
            self._report,
        )
        return run.in_allocation() if run.plan.allocation is not None else run.as_new_job()

    def _report(self, folder: Path, first_exits: Mapping[int, int]) -> None:
        """Print what went wrong: the records of ranks in folder, and the statuses of the first to end."""
        from mlm.failures import read_failures
        from mlm.launch.verdict import explain

        report = explain(
            read_failures(folder),
            first_exits,
            self.launch.processes,
            folder,
            command=self.command.spec.name,
            memory_hint=self.command.memory_hint,
        )
        print(report, end="", file=sys.stderr, flush=True)

    def _say(self, line: str) -> None:
        print(f"{self.command.spec.name}: {line}", file=sys.stderr, flush=True)

    def _tell(self, line: str) -> None:
        """The same from a signal's handler, which must not meet a half-filled buffer."""
        os.write(2, f"{self.command.spec.name}: {line}\n".encode())

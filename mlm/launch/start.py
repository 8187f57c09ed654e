"""From what was typed to running workers: compose, check everything at once, launch, join or show."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from mlm.config.checks import check, resolved
from mlm.config.compose import compose
from mlm.config.schema import TrainConfig
from mlm.data.checks import problems as data_problems
from mlm.errors import ConfigError, Problem
from mlm.launch import rundir
from mlm.launch.machine import Machine, detect_machine
from mlm.launch.preflight import Launch, preflight
from mlm.launch.record import write_run_files
from mlm.launch.step import find_step

EXIT_WORKER_FAILED = 1


def start(
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    *,
    command: Sequence[str],
    environment: Mapping[str, str],
    flaws: Sequence[Problem] = (),
) -> int:
    """Do what the overrides ask for and return the exit code: 0, 1 (a worker failed), 2, 130 or 143.

    flaws: what the command line has against itself already, to be refused with all the rest.
    Raises ConfigError, with all problems there are, DataError or LaunchError when nothing was started.
    """
    started_s = time.time()
    machine = detect_machine(environment)
    try:
        config = compose(overrides, config_dirs)
    except ConfigError as error:
        problems = [*flaws, *error.problems]
        problems += _beyond(problems, overrides, config_dirs, machine, environment)
        step = find_step(environment)
        if step is None or step.world_size == 1 or "launch=local" in overrides:
            raise ConfigError(problems) from None
        from mlm.launch.join import refuse_together

        return refuse_together(step, problems, environment)

    launch, machine_problems = preflight(config, machine, environment, cwd=Path.cwd(), now=datetime.now())
    # With dp inferred, the batch can be checked against it.
    laid_out = dataclasses.replace(config, dp=launch.dp) if config.dp is None else config
    problems = [*flaws, *check(laid_out), *_data_problems(config)]
    if config.launch.mode == "dry_run":
        if problems:
            raise ConfigError(problems)
        from mlm.launch.dry_run import show

        show(config, launch, machine, machine_problems, overrides, config_dirs)
        return 0
    problems += machine_problems
    run = _Run(config, launch, machine, overrides, command, environment, started_s)
    if launch.step is not None:
        from mlm.launch.join import join

        return join(launch.step, config, problems, run.prepare, environment)
    if problems:
        raise ConfigError(problems)
    return run.locally()


def _beyond(
    problems: Sequence[Problem],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    machine: Machine,
    environment: Mapping[str, str],
) -> list[Problem]:
    """What data and machine have against the overrides that composition had nothing against."""
    refused = {problem.where for problem in problems}
    sound = [word for word in overrides if word not in refused]
    if any("." not in word.partition("=")[0] and "/" not in word for word in set(overrides) & refused):
        # A group or a degree that was meant and is not known: what follows from its default would mislead.
        return []
    try:
        config = compose(sound, config_dirs)
    except ConfigError:
        return []
    _, found = preflight(config, machine, environment, cwd=Path.cwd(), now=datetime.now())
    return [problem for problem in (*_data_problems(config), *found) if problem not in problems]


def _data_problems(config: TrainConfig) -> list[Problem]:
    return data_problems(config.data, config.tokenizer, config.model.vocab_size, config.model.seq_length)


@dataclasses.dataclass
class _Run:
    """One run that nothing speaks against."""

    config: TrainConfig
    launch: Launch
    machine: Machine
    overrides: Sequence[str]
    command: Sequence[str]
    environment: Mapping[str, str]
    started_s: float

    def prepare(self) -> Path:
        """Prepare the data, make the run directory and fill it; returns its config.yaml.

        Done by one process of the job. Raises ConfigError or DataError.
        """
        from mlm.data.prepare import prepare_data

        for warning in self.launch.warnings:
            _say(f"warning: {warning}")
        if self.launch.device == "cuda" and self.config.tp > 1:
            _say("CUDA_DEVICE_MAX_CONNECTIONS=1, so that communication starts in the order it is issued")
        model = self.config.model
        data = prepare_data(self.config.data, self.config.tokenizer, model.vocab_size, model.seq_length, _say)
        run_dir = rundir.create(self.launch.run_dir, given=self.config.run_dir is not None)
        config = resolved(
            self.config,
            device=self.launch.device,
            processes=self.launch.processes,
            threads=self.launch.threads,
            precision=self.launch.precision,
            run_dir=str(run_dir),
        )
        (run_dir / "data.json").write_text(data.to_json())
        return write_run_files(
            run_dir,
            config,
            self.machine,
            overrides=self.overrides,
            command=self.command,
            environment=self.environment,
        )

    def locally(self) -> int:
        """Start the workers on this machine, wait for them and report what went wrong, if anything did."""
        config_path = self.prepare()
        from mlm.failures import read_failures
        from mlm.launch.local import run_workers, worker_arguments, worker_environment
        from mlm.launch.verdict import explain

        extra = worker_environment(
            self.environment,
            device=self.launch.device,
            tp=self.config.tp,
            threads=self.launch.threads,
            started_s=self.started_s,
        )
        grace_s = self.config.launch.failure_grace_s
        outcome = run_workers(worker_arguments(config_path), self.launch.processes, extra, grace_s)
        if outcome.signal is not None:
            _say(f"stopped by {outcome.signal.name}; what was written is in {config_path.parent}")
            return 128 + outcome.signal
        if outcome.succeeded:
            return 0
        failures = read_failures(config_path.parent)
        report = explain(failures, outcome.first_exits, self.launch.processes, config_path.parent)
        print(report, end="", file=sys.stderr, flush=True)
        return EXIT_WORKER_FAILED


def _say(line: str) -> None:
    print(f"mlm-train: {line}", file=sys.stderr, flush=True)

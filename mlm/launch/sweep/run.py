"""The runs of a sweep, one after the other: what is missing is run, what fails told, the record kept true."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mlm.errors import ConfigError, Problem
from mlm.launch import rundir
from mlm.launch.sweep.child import Listener, listening, run_child, verdict
from mlm.launch.sweep.folder import carry_over, folder_problems, locked, shown_path
from mlm.launch.sweep.text import show_summary
from mlm.studies.identity import is_finished
from mlm.studies.record import (
    DIVERGED,
    FINISHED,
    PENDING,
    REFUSED,
    SUBMITTED,
    UNFINISHED,
    RunState,
    Study,
    write_study,
)
from mlm.studies.sweeper import SweptPoint

EXIT_SOME_FAILED = 1

Sweep = Callable[[Callable[[SweptPoint], Any]], list[Any]]
"""Hands every point of the sweep to a task."""


def run_sweep(
    study: Study,
    machine_problems: Mapping[str, Sequence[Problem]],
    sweep: Sweep,
    is_queued: Callable[[Path], bool],
) -> int:
    """Run what study.json does not know as finished and return the exit code: 0, 1, 130 or 143.

    machine_problems: by label, why a point cannot run here; such a point is refused and the others run. All
    first repeats come before the second ones, so that a machine that changes with time favours no point.
    Raises ConfigError, with nothing written, when the folder cannot be used or no point can run.
    """
    problems = folder_problems(study.folder, study.name)
    if problems:
        raise ConfigError(problems)
    if not study.folder.exists() and all(machine_problems.get(point.label) for point in study.points):
        raise ConfigError([problem for found in machine_problems.values() for problem in found])
    with locked(study.folder) as held:
        carry_over(study, is_queued)
        runs = _Runs(study, held)
        runs.refuse(machine_problems)
        runs.announce()
        write_study(study)
        with listening() as listener:
            for repeat in range(study.repeats):
                sweep(partial(runs.run, repeat=repeat, listener=listener))
        return runs.conclude(listener)


class _Runs:
    """The runs of a study that is going on."""

    def __init__(self, study: Study, held: int):
        self.study, self.held = study, held
        self.number = 0
        self.missing = 0

    def refuse(self, machine_problems: Mapping[str, Sequence[Problem]]) -> None:
        for point in self.study.points:
            found = machine_problems.get(point.label)
            for run in point.runs if found else []:
                if not self.study.is_seen_to(run):
                    run.status, run.message = REFUSED, "; ".join(map(str, found or []))

    def announce(self) -> None:
        study, runs = self.study, [run for point in self.study.points for run in point.runs]
        repeats = f", {study.repeats} repeats of each" if study.repeats > 1 else ""
        count = f"{len(study.points)} point{'s' if len(study.points) != 1 else ''}"
        say(f"{study.name}: {count}{repeats}, in {shown_path(study.folder)}")
        for status, what in (
            (FINISHED, "finished already"),
            *([(DIVERGED, "diverged already")] if study.compare else []),
            (SUBMITTED, "waiting or running on the cluster"),
        ):
            there = sum(run.status == status for run in runs)
            if there:
                say(f"{there} of {len(runs)} runs {'are' if there > 1 else 'is'} {what}, not run again")
        for point in study.points:
            if point.runs[0].status == REFUSED:
                say(f"{point.label} is refused here, the other points run: {point.runs[0].message}")
        self.missing = sum(not study.is_seen_to(run) and run.status != REFUSED for run in runs)

    def run(self, swept: SweptPoint, *, repeat: int, listener: Listener) -> None:
        """Run one repeat of a point unless it need not or cannot run."""
        point = self.study.point(swept.label)
        assert point is not None, "the study has the points of the sweep"
        run = point.runs[repeat]
        if self.study.is_seen_to(run) or run.status == REFUSED or listener.first is not None:
            return
        self.number += 1
        broken = next((r for r in point.runs[:repeat] if not self.study.is_seen_to(r)), None)
        if broken is not None:
            # What failed once fails again, at the price of a whole run; the same command tries it anew.
            if run.status == PENDING:
                run.message = f"not tried, since {broken.dir} is {broken.status}"
                write_study(self.study)
            return
        self._start(run, rundir.free(self.study.folder / point.label / f"r{repeat + 1}"), listener)

    def _start(self, run: RunState, directory: Path, listener: Listener) -> None:
        study = self.study
        run.dir = directory.relative_to(study.folder).as_posix()
        run.command[-1] = f"run_dir={shown_path(directory)}"
        run.status, run.message = UNFINISHED, None
        write_study(study)
        say(f"run {self.number} of {self.missing}: {run.dir}")
        ended = run_child(run.command[1:], listener, self.held)
        run.exit_code = ended.code
        finished = is_finished(directory, run.hash, run.asked)
        if ended.code == 0 and not finished and (directory / "slurm_job_id").is_file():
            run.status, run.message = SUBMITTED, None
        else:
            run.status, run.message = verdict(ended, directory, finished=finished)
        write_study(study)
        if study.is_result(run) and run.status != FINISHED:
            say(f"{run.dir} is {run.status}, which this study asks for: {run.message}")
        elif not study.is_seen_to(run):
            rest = "" if listener.first else "; the other points run"
            say(f"{run.dir} is {run.status}: {run.message}{rest}")

    def conclude(self, listener: Listener) -> int:
        """The summary on standard output, what to do next, and the exit code."""
        study, runs = self.study, [run for point in self.study.points for run in point.runs]
        show_summary(study)
        submitted = sum(run.status == SUBMITTED for run in runs)
        if submitted:
            say(f"{submitted} of {len(runs)} runs wait or run on the cluster")
            say("the same command later counts them and does what is missing")
        incomplete = [run for run in runs if not study.is_seen_to(run)]
        if incomplete:
            say(f"{len(incomplete)} run{'s' if len(incomplete) > 1 else ''} missing; repeat with")
            say(f"  {shlex.join(study.command)}")
        print(f"mlm-report {shlex.quote(shown_path(study.folder))}", flush=True)
        if listener.first is not None:
            say(f"stopped by {listener.first.name}; the same command goes on from here")
            return 128 + listener.first
        return EXIT_SOME_FAILED if incomplete else 0


def say(line: str) -> None:
    print(f"mlm-train: {line}", file=sys.stderr, flush=True)

"""`mlm-train -m`: a study or a sweep, from what was typed to its runs or its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlm.config.locate import search_dirs
from mlm.errors import ConfigError, LaunchError, Problem
from mlm.launch.command import Command
from mlm.launch.machine import Machine, detect_machine
from mlm.launch.refusal import EXIT_REFUSED
from mlm.launch.slurm.queue import is_active
from mlm.launch.step import Step, find_step
from mlm.launch.sweep.check import CheckedPoint, Checker, published_key, study_problems
from mlm.launch.sweep.folder import carry_over, choose_folder, shown_path
from mlm.studies.definition import Definition, read_definition
from mlm.studies.identity import asked, config_hash
from mlm.studies.record import Point, RunState, Study
from mlm.studies.sweeper import PointSweeper, SweptPoint, drive, names_several
from mlm.studies.values import key_of


def start_sweep(
    command: Command[Any],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    *,
    typed: Sequence[str],
    environment: Mapping[str, str],
    flaws: Sequence[Problem] = (),
) -> int:
    """Run every point that the overrides ask for and return the exit code.

    0: all finished, or submitted to a cluster; 1: some were refused by this machine or failed; 130 or 143:
    stopped by a signal. Raises ConfigError with the problems of all points when nothing was started.
    """
    step = _foreign_step(environment)
    if step is not None and step.rank > 0:
        return EXIT_REFUSED  # rank 0 says why, once
    machine = detect_machine(environment)
    sweep = composed(command, overrides, config_dirs, machine, environment)
    problems = [*flaws, *([] if step is None else [_inside(step)]), *sweep.problems]
    if problems:
        raise ConfigError(problems)
    points, name = sweep.points, None if sweep.definition is None else sweep.definition.name
    folder = choose_folder(points[0].sweep_dir, name, overrides, Path.cwd())
    planned = _planned(folder, sweep, typed, config_dirs)
    is_queued = partial(_is_queued, environment=environment)
    if any(point.config.launch.mode == "dry_run" for point in points):
        from mlm.launch.sweep.plan import show_sweep

        carry_over(planned, is_queued)
        show_sweep(planned, points, machine)
        return 0
    from mlm.launch.sweep.run import run_sweep

    here = {point.label: point.machine_problems for point in points if point.machine_problems}
    return run_sweep(planned, here, sweep.drive, is_queued)


@dataclass(frozen=True)
class Sweep:
    """What was typed after -m, read and composed. problems: all there are, but those of this machine.

    drive: hands every point to a task. definition: None for a plain sweep.
    """

    definition: Definition | None
    arguments: Sequence[str]
    drive: Callable[[Callable[[SweptPoint], Any]], list[Any]]
    points: Sequence[CheckedPoint]
    problems: Sequence[Problem]


def composed(
    command: Command[Any],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    machine: Machine,
    environment: Mapping[str, str],
) -> Sweep:
    """Find out what the overrides mean, and compose and check every point. Raises nothing: see problems."""
    problems: list[Problem] = []
    study, arguments, sweep_dir = _sorted(overrides, problems)
    checker = Checker(command, config_dirs, machine, environment, sweep_dir)
    definition, points = None, []
    hand_out = partial(drive, PointSweeper(None), arguments=arguments, dirs=())
    try:
        definition = None if study is None else read_definition(study, config_dirs)
        sweeper, dirs = PointSweeper(definition), search_dirs(config_dirs)
        hand_out = partial(drive, sweeper, arguments=arguments, dirs=dirs)
        points = [point for point in hand_out(checker) if point is not None]
    except ConfigError as error:
        problems += error.problems
    problems += [*checker.problems(definition, arguments), *study_problems(definition, points)]
    return Sweep(definition, arguments, hand_out, points, problems)


def _foreign_step(environment: Mapping[str, str]) -> Step | None:
    """The step that this process is a worker of; a single task of srun's may start what it likes."""
    step = find_step(environment)
    return None if step is None or (step.starter == "srun" and step.world_size == 1) else step


def _inside(step: Step) -> Problem:
    of = f"{step.world_size} process{'es' if step.world_size > 1 else ''} that {step.starter} started"
    wrong = f"starts runs of its own, and this is one of {of}"
    return Problem("-m", wrong, "call it outside of that step; each run gets its own processes")


def _sorted(overrides: Sequence[str], problems: list[Problem]) -> tuple[str | None, list[str], list[str]]:
    """The study's name, what its points are composed of, and what says where they go."""
    studies = [word.partition("=")[2].strip() for word in overrides if key_of(word) == "study"]
    if len(studies) > 1:
        problems.append(Problem("study", f"is given {len(studies)} times", "run one study at a time"))
    for word in overrides:
        if key_of(word) == "run_dir":
            problems.append(Problem(word, "names one directory, and -m makes several", "use sweep_dir=DIR"))
        if key_of(word) == "resume":
            remedy = "leave it out; the same command runs what is missing"
            problems.append(Problem(word, "is for a single run, and -m makes several", remedy))
    arguments = [
        word for word in overrides if key_of(word) not in ("study", "run_dir", "resume", "sweep_dir")
    ]
    return (
        (studies[0] if studies else None),
        arguments,
        [word for word in overrides if key_of(word) == "sweep_dir"],
    )


def _is_queued(run_dir: Path, *, environment: Mapping[str, str]) -> bool:
    """Whether the job that the run was submitted as waits or runs; True when the cluster does not tell."""
    try:
        return is_active((run_dir / "slurm_job_id").read_text().strip(), environment)
    except OSError:
        return False
    except LaunchError:
        # Submitting it a second time would be the worse mistake.
        return True


def _planned(
    folder: Path,
    sweep: Sweep,
    typed: Sequence[str],
    config_dirs: Sequence[Path],
) -> Study:
    """The study as it is before anything of it has run."""
    definition, points = sweep.definition, sweep.points
    repeats = 1 if definition is None else definition.repeats
    study = Study(
        folder=folder,
        name=folder.name if definition is None else definition.name,
        title=_title(sweep.arguments) if definition is None else definition.title,
        command=list(typed),
        scaling=definition.scaling if definition else None,
        baseline=next((point.label for point in points if point.swept.is_baseline), None),
        published=definition.published if definition else None,
        # The first step is a window of its own, and warms up what the others reuse.
        warmup_steps=definition.warmup_steps if definition else 1,
        compare=definition.compare if definition else None,
        panels=list(definition.panels) if definition else [],
        curves=definition.curves if definition else None,
        repeats=repeats,
    )
    dirs = [word for directory in config_dirs for word in ("--config-dir", str(directory))]
    for point in points:
        # A dry run shows what would be typed, which is what a run records.
        overrides = [word for word in point.swept.overrides if not _asks_for_plan(word)]
        runs = [
            RunState(
                dir=f"{point.label}/r{number}",
                hash=config_hash(point.config),
                asked=asked(point.config),
                command=[
                    "mlm-train",
                    *dirs,
                    *overrides,
                    f"run_dir={shown_path(folder / point.label / f'r{number}')}",
                ],
            )
            for number in range(1, repeats + 1)
        ]
        study.points.append(
            Point(
                label=point.label,
                series=point.swept.series,
                published_key=published_key(definition, point),
                overrides=overrides,
                runs=runs,
            )
        )
    return study


def _asks_for_plan(override: str) -> bool:
    return override.partition("=")[::2] in (("launch", "dry_run"), ("launch.mode", "dry_run"))


def _title(arguments: Sequence[str]) -> str:
    return " ".join(word for word in arguments if names_several(word)) or "a single run"

"""The points of a sweep, all composed and checked before one runs: no study dies of a slip in its third."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlm.config.compose import compose
from mlm.config.fields import flatten
from mlm.config.schema import TrainConfig
from mlm.errors import ConfigError, Problem
from mlm.launch.command import Command
from mlm.launch.machine import Machine
from mlm.launch.preflight import Launch
from mlm.plan.published import PUBLISHED
from mlm.studies.definition import PROCESSES, Definition
from mlm.studies.sweeper import SweptPoint


@dataclasses.dataclass(frozen=True)
class CheckedPoint:
    """A point that composes. config: the sweep's folder aside; machine_problems: why it cannot run here."""

    swept: SweptPoint
    config: TrainConfig
    sweep_dir: str | None
    launch: Launch
    machine_problems: tuple[Problem, ...]

    @property
    def label(self) -> str:
        return self.swept.label


class Checker:
    """The task function of the first sweep: composes a point, and remembers what speaks against it."""

    def __init__(
        self,
        command: Command[Any],
        config_dirs: Sequence[Path],
        machine: Machine,
        environment: Mapping[str, str],
        sweep_dir: Sequence[str],
    ):
        self.command, self.config_dirs = command, config_dirs
        self.machine, self.environment = machine, environment
        self.sweep_dir = sweep_dir
        self.points: list[SweptPoint] = []
        self.found: dict[Problem, list[SweptPoint]] = {}

    def __call__(self, point: SweptPoint) -> CheckedPoint | None:
        self.points.append(point)
        spec = self.command.spec
        try:
            config = compose([*point.overrides, *self.sweep_dir], self.config_dirs, spec)
        except ConfigError as error:
            self._refuse(point, error.problems)
            return None
        sweep_dir, config = config.sweep_dir, dataclasses.replace(config, sweep_dir=None)
        launch, machine_problems = self.command.preflight(config, self.machine, self.environment)
        laid_out = dataclasses.replace(config, dp=launch.dp) if config.dp is None else config
        problems = [*spec.check(laid_out), *self.command.file_problems(config)]
        if problems:
            self._refuse(point, problems)
            return None
        return CheckedPoint(point, config, sweep_dir, launch, tuple(machine_problems))

    def _refuse(self, point: SweptPoint, problems: Sequence[Problem]) -> None:
        for problem in problems:
            self.found.setdefault(problem, []).append(point)

    def problems(self, definition: Definition | None, arguments: Sequence[str]) -> list[Problem]:
        """Each problem once, with the points that have it unless all do."""
        return [
            problem
            if len(points) == len(self.points) and (definition is None or problem.where in arguments)
            else dataclasses.replace(
                problem, where=f"{problem.where} ({_named(points, self.points, definition)})"
            )
            for problem, points in self.found.items()
        ]


def _named(
    points: Sequence[SweptPoint], all_points: Sequence[SweptPoint], definition: Definition | None
) -> str:
    if definition is None:
        more = f" and {len(points) - 3} more" if len(points) > 3 else ""
        return f"point {'; '.join(point.label for point in points[:3])}{more}"
    if len(points) == len(all_points):
        return f"{definition.path}, all points"
    others = f" and {len(points) - 1} more" if len(points) > 1 else ""
    return f"{points[0].where}{others}"


def study_problems(definition: Definition | None, points: Sequence[CheckedPoint]) -> list[Problem]:
    """What a study's file has wrong that shows only beside the composed points."""
    if definition is None or not points:
        return []
    found, path = [], definition.path
    if definition.published not in (None, *PUBLISHED):
        there = ", ".join(PUBLISHED)
        found.append(
            Problem(f"{path} published: {definition.published}", "is no published figure", f"use {there}")
        )
    for point in points if definition.compare not in (None, "loss") else []:
        if (name := point.config.objective.name) != "masked_lm":
            wrong = f"is no figure of objective={name} at {point.swept.where}"
            found.append(Problem(f"{path} compare: {definition.compare}", wrong, "use compare: loss"))
            break
    shortest = min(point.config.train.steps for point in points)
    if shortest <= definition.warmup_steps:
        wrong = f"leaves nothing of a run with train.steps={shortest}"
        remedy = f"use train.steps={definition.warmup_steps + 10} or more"
        found.append(Problem(f"{path} warmup_steps: {definition.warmup_steps}", wrong, remedy))
    for point in points:
        is_extra = point.swept.is_baseline and definition.adds_baseline
        if definition.published_key is None or is_extra:
            continue
        if not isinstance(published_key(definition, point), int):
            wrong = f"is no number at {point.swept.where}"
            remedy = f"use {PROCESSES}, or a key with a number"
            found.append(Problem(f"{path} published_key: {definition.published_key}", wrong, remedy))
            break
    return found


def published_key(definition: Definition | None, point: CheckedPoint) -> Any:
    """The point's place in the published figure; a baseline that is no point of the study has none."""
    if definition is None or definition.published_key is None:
        return None
    if point.swept.is_baseline and definition.adds_baseline:
        return None
    if definition.published_key == PROCESSES:
        return point.launch.processes
    return flatten(point.config).get(definition.published_key)

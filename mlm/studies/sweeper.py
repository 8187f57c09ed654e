"""Hydra's sweeps as we drive them: a product of what was typed, or the pairs that a study lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper

from mlm.errors import ConfigError, Problem
from mlm.studies.definition import Definition
from mlm.studies.values import key_of, labels

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

MOST_POINTS = 1000
"""Points of one sweep; more of them are a typing slip, as range(1e6) for range(6)."""


@dataclass(frozen=True)
class SweptPoint:
    """One configuration of a sweep, not composed yet. where: the line of the study that lists it, or None."""

    number: int
    label: str
    overrides: tuple[str, ...]
    series: str | None = None
    where: str | None = None
    is_baseline: bool = False


class PointSweeper(Sweeper):
    """Hands every point to the task function, one after the other, and returns what that returned.

    With a definition the points are its pairs, and the arguments hold for all of them; without one they are
    the product of all arguments that name several values. Nothing is written and nothing composed here.
    """

    def __init__(self, definition: Definition | None = None):
        self.definition = definition
        self._expanded: dict[tuple[str, ...], list[SweptPoint]] = {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """task_function gets a SweptPoint where Hydra's own launchers would give it a composed config."""
        self.hydra_context = hydra_context
        self.task_function: Callable[[SweptPoint], Any] = task_function
        self.config = config

    def sweep(self, arguments: list[str]) -> list[Any]:
        """Raises ConfigError, before the first task, when the arguments make no sweep."""
        return [self.task_function(point) for point in self.points(arguments)]

    def points(self, arguments: Sequence[str]) -> list[SweptPoint]:
        """The points of the sweep that the arguments ask for, each with a name of its own.

        Found once, so that a second sweep has the order of the first: tp=shuffle(1,2) is another each time.
        """
        given = tuple(arguments)
        if given not in self._expanded:
            definition = self.definition
            points = self._product(given) if definition is None else _pairs(definition, given)
            self._expanded[given] = points
        return self._expanded[given]

    def _product(self, arguments: Sequence[str]) -> list[SweptPoint]:
        assert self.hydra_context is not None, "setup comes first"
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        problems: list[Problem] = []
        choices = [_values(argument, parser, problems) for argument in arguments]
        count = 1
        for values in choices:
            count *= len(values)
        if count > MOST_POINTS:
            wrong = f"makes {count:,} points, and a sweep takes {MOST_POINTS:,}"
            problems.append(Problem("-m", wrong, "give fewer values"))
        if problems:
            raise ConfigError(problems)
        varied = [index for index, values in enumerate(choices) if len(values) > 1]
        combinations = list(itertools.product(*choices))
        named = labels([dict(_split(words[index]) for index in varied) for words in combinations])
        return [
            SweptPoint(number, label, words)
            for number, (label, words) in enumerate(zip(named, combinations, strict=True), 1)
        ]


def _values(argument: str, parser: OverridesParser, problems: list[Problem]) -> list[str]:
    """The overrides that one argument stands for; what is no override is left for composition to refuse."""
    try:
        (override,) = parser.parse_overrides([argument])  # parse_override leaves globs without their groups
        if not override.is_sweep_override():
            return [argument]
        if not override.is_discrete_sweep():
            remedy = f"list the values, as {override.get_key_element()}=1,2, or use range(1,3)"
            problems.append(Problem(argument, "is a range without steps between its ends", remedy))
            return [argument]
        key = override.get_key_element()
        values = list(dict.fromkeys(f"{key}={value}" for value in override.sweep_string_iterator()))
    except HydraException:
        return [argument]
    if not values:
        problems.append(Problem(argument, "matches nothing", f"mlm-train --help lists what {key} can be"))
        return [argument]
    return values


def _pairs(definition: Definition, arguments: Sequence[str]) -> list[SweptPoint]:
    """Overrides that are typed hold for all points and win over what the study fixes, not over its points."""
    varied = {key: point.where for point in definition.points for key in point.values}
    problems = [
        Problem(
            argument,
            f"is what the points of study={definition.path.stem} vary",
            f"leave it out, or copy {definition.path} into DIR/study/ and use --config-dir DIR",
        )
        for argument in arguments
        if key_of(argument) in varied
    ]
    problems += [
        Problem(argument, "gives several values, and the points of a study stand in its file", "give one")
        for argument in arguments
        if names_several(argument)
    ]
    if problems:
        raise ConfigError(problems)
    given = {key_of(argument) for argument in arguments}
    fixed = {key: value for key, value in definition.fixed.items() if key not in given}
    named = labels([point.values for point in definition.points])
    return [
        SweptPoint(
            number,
            label,
            (
                *_typed({**point.values, **{k: v for k, v in fixed.items() if k not in point.values}}),
                *arguments,
            ),
            point.series,
            point.where,
            point is definition.baseline,
        )
        for number, (label, point) in enumerate(zip(named, definition.points, strict=True), 1)
    ]


def names_several(argument: str) -> bool:
    """Whether an override is a sweep: tp=1,2, seed=range(1,4), model=glob(*)."""
    try:
        return bool(OverridesParser.create().parse_override(argument).is_sweep_override())
    except HydraException:
        return False


def drive(
    sweeper: PointSweeper,
    task: Callable[[SweptPoint], Any],
    arguments: Sequence[str],
    dirs: Sequence[Path],
) -> list[Any]:
    """Set the sweeper up as Hydra's own main would, and sweep.

    dirs: where groups are looked for, for globs. Raises ConfigError when the arguments make no sweep.
    """
    from hydra._internal.callbacks import Callbacks
    from hydra.types import HydraContext
    from omegaconf import OmegaConf

    from mlm.config.hydra_groups import config_loader

    context = HydraContext(config_loader=config_loader(dirs), callbacks=Callbacks())
    sweeper.setup(hydra_context=context, task_function=task, config=OmegaConf.create())
    return sweeper.sweep(list(arguments))


def _typed(values: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def _split(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value

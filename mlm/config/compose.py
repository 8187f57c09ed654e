"""From what was typed to one typed configuration: groups composed by Hydra, every value checked by us."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from mlm.config.command import TRAIN, Spec
from mlm.config.fields import MISSING, C, Refused, assemble, mapping_of, read, schema_fields
from mlm.config.from_checkpoint import fill_from_checkpoint
from mlm.config.hydra_groups import GroupComposer
from mlm.config.leaves import read_leaves
from mlm.config.locate import Group, find_groups, search_dirs
from mlm.config.names import nearest
from mlm.config.overrides import Judged, Known, judge
from mlm.config.schema import TrainConfig
from mlm.config.store import load_config, save_config
from mlm.errors import ConfigError, Problem

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["compose", "describe_groups", "load_config", "nearest", "save_config"]


def describe_groups(config_dirs: Sequence[Path | str] = (), spec: Spec[Any] = TRAIN) -> list[Group]:
    """The groups in the order they compose, each with its options and their one-line descriptions."""
    return list(find_groups(search_dirs(config_dirs), spec.primary).values())


@overload
def compose(overrides: Sequence[str], config_dirs: Sequence[Path | str] = ()) -> TrainConfig: ...


@overload
def compose(overrides: Sequence[str], config_dirs: Sequence[Path | str], spec: Spec[C]) -> C: ...


def compose(overrides: Sequence[str], config_dirs: Sequence[Path | str] = (), spec: Spec[Any] = TRAIN) -> Any:
    """The configuration that overrides ask for, relative paths resolved against the current directory.

    Raises ConfigError with every problem of the overrides and of the YAML files, and, when there is one,
    with what the command's own check finds in the rest as well. A configuration that is returned has the
    right keys and types; whether its numbers make sense is check's to say.
    """
    dirs, schema = search_dirs(config_dirs), spec.schema
    groups = find_groups(dirs, spec.primary)
    judged = judge(overrides, Known(spec.name, schema, groups))
    composer = GroupComposer(judged.choices, dirs, spec.primary, schema)
    composed = composer.compose()
    before = read_leaves(composed, {}, schema).values
    _assign(composed, judged, schema)
    unfilled, marked = fill_from_checkpoint(composed, spec)
    leaves = read_leaves(composed, before, schema)
    for key in marked:
        leaves.refused.pop(key, None)
        leaves.values.pop(key, None)
    for key, given in judged.verbatim.items():
        try:
            leaves.values[key] = read(schema_fields(schema)[key], given.value)
        except Refused as error:
            leaves.refused[key] = (given.text, error)

    problems = [*judged.problems, *unfilled]
    sources = composer.sources() if set(leaves.refused) - set(judged.assignments) else {}
    mistyped = {problem.where.partition("=")[0] for problem in judged.problems}
    for key, (shown, refused) in leaves.refused.items():
        if key in mistyped and shown is None:
            continue  # given, though not in a way that can be read: "is not set" would mislead
        typed = judged.assignments.get(key)
        shown = typed.text if typed else shown
        file = f" ({sources[key]})" if key in sources and not typed else ""
        where = key if shown is None else f"{key}={shown}"
        problems.append(Problem(where, f"{refused.wrong}{file}", refused.remedy))
    if problems:
        wrong_choice = any(problem.where.partition("=")[0] in groups for problem in judged.problems)
        usable = {key: leaves.values.get(key, before.get(key, MISSING)) for key in schema_fields(schema)}
        # With another model than the one that was meant, its further problems would only mislead.
        if not wrong_choice and MISSING not in usable.values():
            broken = {problem.where.partition("=")[0] for problem in problems}
            found = spec.check(spec.completed(assemble(usable, schema)))
            problems += [p for p in found if p.where.partition("=")[0] not in broken]
        raise ConfigError(problems)

    for key in spec.paths:
        value = leaves.values[key]
        if isinstance(value, dict):
            leaves.values[key] = {name: _absolute(path) for name, path in value.items()}
        elif isinstance(value, list):
            leaves.values[key] = [
                _absolute(part) if isinstance(part, str) else replace(part, path=_absolute(part.path))
                for part in value
            ]
        elif value is not None:
            leaves.values[key] = _absolute(value)
    return spec.completed(assemble(leaves.values, schema))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _assign(composed: DictConfig, judged: Judged, schema: type) -> None:
    """Writes the typed values into composed; one that OmegaConf cannot hold becomes a problem."""
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for key, typed in list(judged.assignments.items()):
        mapping = mapping_of(key, schema)
        try:
            if mapping is not None:
                # An entry's name may hold dots of its own, which are no levels: task_paths.lambada.original.
                entries = OmegaConf.select(composed, mapping.key)
                entries = entries if isinstance(entries, DictConfig) else OmegaConf.create({})
                entries[key.removeprefix(f"{mapping.key}.")] = typed.value
                OmegaConf.update(composed, mapping.key, entries, merge=False, force_add=True)
                continue
            OmegaConf.update(composed, key, typed.value, merge=False, force_add=True)
        except OmegaConfBaseException as error:
            why = str(error).partition("\n")[0]
            judged.refuse(f"{key}={typed.text}", f"cannot be read ({why})", "write a plain value")
            del judged.assignments[key]

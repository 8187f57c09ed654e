"""From what was typed to one typed configuration: groups composed by Hydra, every value checked by us."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlm.config.checks import check
from mlm.config.fields import MISSING, assemble, schema_fields
from mlm.config.hydra_groups import GroupComposer
from mlm.config.leaves import read_leaves
from mlm.config.locate import Group, find_groups, search_dirs
from mlm.config.names import nearest
from mlm.config.overrides import Judged, judge
from mlm.config.schema import TrainConfig
from mlm.config.store import load_config, save_config
from mlm.errors import ConfigError, Problem

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["compose", "describe_groups", "load_config", "nearest", "save_config"]

PATHS = ("data.path", "data.cache_dir", "tokenizer.path", "run_dir")
"""Keys that name a file or directory, made absolute once, against the directory of the command."""


def describe_groups(config_dirs: Sequence[Path | str] = ()) -> list[Group]:
    """The groups in the order they compose, each with its options and their one-line descriptions."""
    return list(find_groups(search_dirs(config_dirs)).values())


def compose(overrides: Sequence[str], config_dirs: Sequence[Path | str] = ()) -> TrainConfig:
    """The configuration that overrides ask for, relative paths resolved against the current directory.

    Raises ConfigError with every problem of the overrides and of the YAML files, and, when there is one,
    with what mlm.config.checks.check finds in the rest as well. A configuration that is returned has the
    right keys and types; whether its numbers make sense is check's to say.
    """
    dirs = search_dirs(config_dirs)
    groups = find_groups(dirs)
    judged = judge(overrides, groups)
    composer = GroupComposer(judged.choices, dirs)
    composed = composer.compose()
    before = read_leaves(composed, {}).values
    _assign(composed, judged)
    leaves = read_leaves(composed, before)

    problems = list(judged.problems)
    sources = composer.sources() if set(leaves.refused) - set(judged.assignments) else {}
    for key, (shown, refused) in leaves.refused.items():
        typed = judged.assignments.get(key)
        shown = typed.text if typed else shown
        file = f" ({sources[key]})" if key in sources and not typed else ""
        where = key if shown is None else f"{key}={shown}"
        problems.append(Problem(where, f"{refused.wrong}{file}", refused.remedy))
    if problems:
        wrong_choice = any(problem.where.partition("=")[0] in groups for problem in judged.problems)
        usable = {key: leaves.values.get(key, before.get(key, MISSING)) for key in schema_fields()}
        # With another model than the one that was meant, its further problems would only mislead.
        if not wrong_choice and MISSING not in usable.values():
            broken = {problem.where.partition("=")[0] for problem in problems}
            problems += [p for p in check(assemble(usable)) if p.where.partition("=")[0] not in broken]
        raise ConfigError(problems)

    for key in PATHS:
        if leaves.values[key] is not None:
            leaves.values[key] = os.path.abspath(os.path.expanduser(leaves.values[key]))
    return assemble(leaves.values)


def _assign(composed: DictConfig, judged: Judged) -> None:
    """Writes the typed values into composed; one that OmegaConf cannot hold becomes a problem."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for key, typed in list(judged.assignments.items()):
        try:
            OmegaConf.update(composed, key, typed.value, merge=False, force_add=True)
        except OmegaConfBaseException as error:
            why = str(error).partition("\n")[0]
            judged.refuse(f"{key}={typed.text}", f"cannot be read ({why})", "write a plain value")
            del judged.assignments[key]

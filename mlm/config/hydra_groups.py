"""The one place that drives Hydra: composing groups, and saying which file set which key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm.config.fields import MISSING, schema_fields
from mlm.config.locate import unreadable
from mlm.errors import ConfigError, Problem

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig


class GroupComposer:
    """Composes the chosen options of the groups in dirs; the first directory that has a file wins.

    Hydra's class stands here instead of its public initialize(), which keeps a global and takes no further
    directory in front of the one with the primary file. No output folder, no logging, no change of directory.
    """

    def __init__(self, choices: Mapping[str, str], dirs: Sequence[Path], primary: str, schema: type):
        from hydra import version
        from hydra._internal.hydra import Hydra

        version.setbase("1.3")
        _register_resolvers()
        self._hydra = Hydra("mlm", config_loader(dirs))
        self._selected = [f"{group}={option}" for group, option in choices.items()]
        self._dirs, self._primary, self._schema = dirs, primary, schema

    def compose(self) -> DictConfig:
        """The composition, over the schema's defaults. Raises ConfigError when a file does not compose."""
        from hydra.errors import HydraException
        from hydra.types import RunMode
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        try:
            composed = self._hydra.compose_config(
                self._primary, self._selected, RunMode.RUN, with_log_configuration=False, from_shell=False
            )
            OmegaConf.set_struct(composed, False)
            del composed["hydra"]
            _fill_defaults(composed, self._schema)
        # AttributeError is what Hydra's own reading of a malformed defaults list ends in.
        except (HydraException, OmegaConfBaseException, YAMLError, ValueError, AttributeError) as error:
            raise ConfigError(self._problem(error)) from None
        return composed

    def sources(self) -> dict[str, Path]:
        """Dotted key -> the last composed file that sets it. Costs as much as composing."""
        from hydra.types import RunMode
        from omegaconf import DictConfig, OmegaConf

        loaded = self._hydra.config_loader.compute_defaults_list(self._primary, self._selected, RunMode.RUN)
        sources: dict[str, Path] = {}
        for default in loaded.defaults:
            path = next((p for d in self._dirs if (p := d / f"{default.config_path}.yaml").is_file()), None)
            if path is None:
                continue
            content = OmegaConf.load(path)
            if isinstance(content, DictConfig):
                content.pop("defaults", None)
            plain = OmegaConf.to_container(content, resolve=False)
            sources |= dict.fromkeys(_leaf_keys(plain, default.package or ""), path)
        return sources

    def _problem(self, error: BaseException) -> Problem:
        """Hydra's refusal of a YAML file in our grammar."""
        while error.__cause__ is not None:
            error = error.__cause__
        mark = getattr(error, "problem_mark", None)
        if mark is not None:
            return unreadable(Path(mark.name), error)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # The user's directories when there are any: the shipped files compose.
        where = ", ".join(str(d) for d in self._dirs[:-1] or self._dirs)
        chosen = f"with {' '.join(self._selected)} " if self._selected else ""
        remedy = "correct the defaults list of the file"
        return Problem(where, f"{chosen}does not compose ({' '.join(lines[:2])})", remedy)


def config_loader(dirs: Sequence[Path]) -> ConfigLoader:
    """Hydra's view of the groups in dirs, the first directory that has a file winning."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path

    search_path = create_config_search_path(str(dirs[0]))
    for directory in dirs[1:]:
        # Hydra wants its own last entry, the structured schemas, to stay the last.
        search_path.prepend("mlm", f"file://{directory}", anchor="schema")
    return ConfigLoaderImpl(search_path)


def _register_resolvers() -> None:
    """`${mlm.hundredth:a,b}`: a hundredth of a, or of b when a is null, at least 1, and 0 of a single step.

    The paper warms up over 3k of 300k steps; a shorter run keeps the proportion.
    `${mlm.shipped:FILE}`: the path of a file of mlm/data/assets.
    """
    from omegaconf import OmegaConf

    def hundredth(first: Any, second: Any) -> int:
        whole = second if first is None else first
        # Anything but a number is refused under its own key; one problem is enough.
        return max(1, int(whole) // 100) if isinstance(whole, (int, float)) and 1 < whole < 2**53 else 0

    assets = Path(__file__).resolve().parents[1] / "data" / "assets"
    OmegaConf.register_new_resolver("mlm.hundredth", hundredth, replace=True)
    OmegaConf.register_new_resolver("mlm.shipped", lambda name: str(assets / name), replace=True)


def _fill_defaults(composed: DictConfig, schema: type) -> None:
    """Adds the schema's default of every key that no file set, so that YAML may refer to it: ${train.steps}.

    A key that a file set to ??? stays missing, which a merge over the defaults would undo.
    """
    from omegaconf import OmegaConf

    given = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(given, dict), "a primary file is a mapping"
    for key, field in schema_fields(schema).items():
        section, _, name = key.rpartition(".")
        inside = given.get(section, {}) if section else given
        if isinstance(inside, dict) and name not in inside:
            default = "???" if field.default is MISSING else getattr(field.default, "name", field.default)
            OmegaConf.update(composed, key, default, force_add=True)


def _leaf_keys(node: Any, prefix: str) -> list[str]:
    if not isinstance(node, dict) or not node:
        return [prefix]
    return [
        key
        for name, child in node.items()
        for key in _leaf_keys(child, f"{prefix}.{name}" if prefix else str(name))
    ]

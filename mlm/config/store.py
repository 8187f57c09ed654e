"""A configuration as a file: the resolved YAML that the launcher writes and every worker reads."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from pathlib import Path
from typing import Any, overload

import yaml

from mlm.config.fields import MISSING, C, Refused, assemble, flatten, read, schema_fields, sections
from mlm.config.locate import unreadable
from mlm.config.schema import TrainConfig
from mlm.errors import ConfigError, Problem
from mlm.files import write_whole

_NUMBER = re.compile(
    r"""^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$""",
    re.VERBOSE,
)
"""Floats as people write them. YAML 1.1, which PyYAML follows, reads 1e-4 as text for want of a dot."""


class _Loader(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    pass


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789."))


def _quoted_when_numeric(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # A run named 1E5 stays text for every YAML reader, whichever grammar of numbers it follows.
    style = '"' if _NUMBER.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _on_one_line(dumper: yaml.SafeDumper, numbers: list[float]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", numbers, flow_style=True)


_Dumper.add_representer(str, _quoted_when_numeric)
_Dumper.add_representer(list, _on_one_line)


def save_config(config: Any, path: Path | str) -> None:
    """Writes every field as YAML, whole or not at all, enums by name; load_config reads an equal one back."""
    nested: dict[str, Any] = {}
    for key, value in flatten(config).items():
        section, _, name = key.rpartition(".")
        target = nested.setdefault(section, {}) if section else nested
        target[name] = _as_yaml(value)
    text = yaml.dump(nested, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    write_whole(Path(path), text)


def _as_yaml(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list):
        return [dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v for v in value]  # type: ignore[arg-type]
    return value


@overload
def load_config(path: Path | str) -> TrainConfig: ...


@overload
def load_config(path: Path | str, schema: type[C]) -> C: ...


def load_config(path: Path | str, schema: type = TrainConfig) -> Any:
    """The configuration that save_config wrote. Raises ConfigError with every problem of the file."""
    path = Path(path)
    try:
        nested = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        problem = Problem(str(path), f"cannot be read ({error.strerror})", "name a run's config.yaml")
        raise ConfigError(problem) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable(path, error)) from None
    if not isinstance(nested, dict):
        raise ConfigError(Problem(str(path), "holds no configuration", "name a run's config.yaml"))

    given: dict[str, Any] = {}
    for name, value in nested.items():
        is_section = isinstance(value, dict) and name in sections(schema)
        inside = {f"{name}.{k}": v for k, v in value.items()} if is_section else {str(name): value}
        given |= inside
    values, problems = {}, []
    for key, field in schema_fields(schema).items():
        value = given.pop(key, field.default)
        if value is MISSING:
            problems.append(Problem(f"{key} in {path}", "is not set", f"add {key}"))
            continue
        try:
            values[key] = read(field, value)
        except Refused as refused:
            problems.append(Problem(f"{key}={value} in {path}", refused.wrong, refused.remedy))
    problems += [Problem(f"{key} in {path}", "is no such key", "remove it") for key in given]
    if problems:
        raise ConfigError(problems)
    return assemble(values, schema)

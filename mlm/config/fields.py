"""The schema as a flat table of dotted keys, and the reading of plain values into its types."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from mlm.config.names import alternatives, nearest
from mlm.config.schema import TrainConfig

MISSING = object()
"""Default of a field that has none: YAML or the command line has to give it."""


@dataclass(frozen=True)
class Field:
    """One leaf of the schema: its dotted key, its type without None, whether null is allowed, its default."""

    key: str
    kind: Any
    optional: bool
    default: Any

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is list

    @property
    def is_number(self) -> bool:
        return self.kind in (int, float)


class Refused(Exception):
    """A value that does not fit its field: what is required and not met, and what to give instead."""

    def __init__(self, wrong: str, remedy: str):
        super().__init__(f"{wrong}: {remedy}")
        self.wrong, self.remedy = wrong, remedy


@cache
def schema_fields() -> dict[str, Field]:
    """Every leaf of TrainConfig by its dotted key, in the order it is declared."""
    return {f.key: f for f in _walk(TrainConfig, "")}


@cache
def sections() -> tuple[str, ...]:
    """The names of the nested dataclasses: model, tokenizer, ... train."""
    return tuple(dict.fromkeys(key.partition(".")[0] for key in schema_fields() if "." in key))


def read(field: Field, value: Any, example: Any = None) -> Any:
    """value as field's type: whole floats become ints for an int field, ints become floats for a float field.

    example is a value that is known to be valid, for the remedy. Raises Refused.
    """
    if value is None:
        if field.optional:
            return None
        raise Refused("may not be null", _remedy(field, example))
    if field.is_list:
        if not isinstance(value, (list, tuple)):
            shown = plain(example) or "[1,2]"
            raise Refused("is not a list", f"write it with brackets, as {field.key}={shown}")
        (kind,) = get_args(field.kind)
        element = Field(field.key, kind, False, MISSING)
        return [read(element, v, example[0] if example else None) for v in value]
    if isinstance(field.kind, type) and issubclass(field.kind, Enum):
        return _read_enum(field.kind, value)
    if field.kind is bool and isinstance(value, bool):
        return value
    if field.kind is int and not isinstance(value, bool):
        if isinstance(value, int):
            return value
        # 1e6 is how people write a million; beyond 2**53 a float no longer says which integer is meant.
        if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
            return int(value)
    if field.kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if field.kind is str and isinstance(value, str):
        if not value.strip():
            raise Refused("is empty", _remedy(field, example))
        return value
    raise Refused(f"is not {_KIND[field.kind]}", _remedy(field, example))


def assemble(values: Mapping[str, Any]) -> TrainConfig:
    """The dataclass from the values of every key of schema_fields(), already of their types."""
    config: TrainConfig = _assemble(TrainConfig, "", values)
    return config


def flatten(config: TrainConfig) -> dict[str, Any]:
    """The reverse of assemble: dotted key -> value."""
    return {key: _get(config, key) for key in schema_fields()}


_KIND = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _read_enum(kind: type[Enum], value: Any) -> Enum:
    if isinstance(value, kind):
        return value
    names = [member.name for member in kind]
    if value in names:
        return kind[value]
    close = nearest(str(value), names, limit=1)
    raise Refused(f"is not {alternatives(names)}", f"use {close[0] if close else alternatives(names)}")


def _remedy(field: Field, example: Any) -> str:
    null = " or null" if field.optional else ""
    if field.kind is bool:
        return "write true or false"
    if field.kind is str:
        return f"write text, in quotes if it looks like a number{null}"
    if example is None:
        example = 1 if field.kind is int else 0.1 if field.kind is float else None
    shown = f", as {field.key}={plain(example)}" if example is not None else ""
    return f"write {_KIND.get(field.kind, 'a value')}{null}{shown}"


def plain(value: Any) -> str:
    """value as it would be typed on the command line."""
    if isinstance(value, list):
        return f"[{','.join(plain(v) for v in value)}]"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _walk(cls: Any, prefix: str) -> list[Field]:
    hints, found = get_type_hints(cls), []
    for f in dataclasses.fields(cls):
        hint, key = hints[f.name], f"{prefix}{f.name}"
        if dataclasses.is_dataclass(hint):
            found += _walk(hint, f"{key}.")
            continue
        optional = get_origin(hint) in (Union, types.UnionType)
        if optional:
            (hint,) = (a for a in get_args(hint) if a is not type(None))
        default = MISSING if f.default is dataclasses.MISSING else f.default
        found.append(Field(key, hint, optional, default))
    return found


def _assemble(cls: Any, prefix: str, values: Mapping[str, Any]) -> Any:
    hints, arguments = get_type_hints(cls), {}
    for f in dataclasses.fields(cls):
        key = f"{prefix}{f.name}"
        nested = dataclasses.is_dataclass(hints[f.name])
        arguments[f.name] = _assemble(hints[f.name], f"{key}.", values) if nested else values[key]
    return cls(**arguments)


def _get(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config

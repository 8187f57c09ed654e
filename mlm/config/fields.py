"""The schema as a flat table of dotted keys, and the reading of plain values into its types."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from mlm.config.names import alternatives, nearest
from mlm.config.schema import TrainConfig

C = TypeVar("C")

MISSING = object()
"""Default of a field that has none: YAML or the command line has to give it."""


@dataclass(frozen=True)
class Field:
    """One leaf of the schema: its dotted key, its type without None, whether null is allowed, its default.

    verbatim: any text is a value, as it is typed, also an empty one.
    """

    key: str
    kind: Any
    optional: bool
    default: Any
    verbatim: bool = False

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is list

    @property
    def holds_records(self) -> bool:
        """Whether it is a list of mappings with named entries: data.blend."""
        return self.is_list and dataclasses.is_dataclass(get_args(self.kind)[0])

    @property
    def is_mapping(self) -> bool:
        """Whether its entries are named by the user: task_paths.NAME=FILE."""
        return get_origin(self.kind) is dict

    @property
    def is_number(self) -> bool:
        return self.kind in (int, float)


class Refused(Exception):
    """A value that does not fit its field: what is required and not met, and what to give instead."""

    def __init__(self, wrong: str, remedy: str):
        super().__init__(f"{wrong}: {remedy}")
        self.wrong, self.remedy = wrong, remedy


@lru_cache
def _fields(schema: Any) -> dict[str, Field]:
    return {f.key: f for f in _walk(schema, "")}


def schema_fields(schema: type = TrainConfig) -> dict[str, Field]:
    """Every leaf of a command's dataclass by its dotted key, in the order it is declared."""
    return _fields(schema)


def sections(schema: type = TrainConfig) -> tuple[str, ...]:
    """The names of the nested dataclasses: model, tokenizer, ... train."""
    return tuple(dict.fromkeys(key.partition(".")[0] for key in schema_fields(schema) if "." in key))


def find_field(key: str, schema: type = TrainConfig) -> Field | None:
    """The leaf of that key, or the entry that it names in a mapping; None when there is neither."""
    if key in schema_fields(schema):
        return schema_fields(schema)[key]
    mapping = mapping_of(key, schema)
    return None if mapping is None else Field(key, get_args(mapping.kind)[1], False, MISSING)


def mapping_of(key: str, schema: type = TrainConfig) -> Field | None:
    """The mapping in which key is an entry: task_paths for task_paths.wikitext103; None outside of any."""
    found = (f for f in schema_fields(schema).values() if f.is_mapping and key.startswith(f"{f.key}."))
    return next((f for f in found if len(key) > len(f.key) + 1), None)


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
            shown = plain(example) or _list_example(field)
            raise Refused("is not a list", f"write it with brackets, as {field.key}={shown}")
        (kind,) = get_args(field.kind)
        element = Field(field.key, kind, False, MISSING, field.verbatim)
        return [read(element, v, example[0] if example else None) for v in value]
    if dataclasses.is_dataclass(field.kind):
        return _read_record(field, value)
    if field.is_mapping:
        if not isinstance(value, dict):
            raise Refused("is not a mapping of names", f"write each entry as {field.key}.NAME=VALUE")
        kind = get_args(field.kind)[1]
        return {str(k): read(Field(f"{field.key}.{k}", kind, False, MISSING), v) for k, v in value.items()}
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
        if not value.strip() and not field.verbatim:
            raise Refused("is empty", _remedy(field, example))
        return value
    raise Refused(f"is not {_KIND[field.kind]}", _remedy(field, example))


@overload
def assemble(values: Mapping[str, Any]) -> TrainConfig: ...


@overload
def assemble(values: Mapping[str, Any], schema: type[C]) -> C: ...


def assemble(values: Mapping[str, Any], schema: type = TrainConfig) -> Any:
    """The dataclass from the values of every key of schema_fields(schema), already of their types."""
    return _assemble(schema, "", values)


def flatten(config: Any) -> dict[str, Any]:
    """The reverse of assemble: dotted key -> value."""
    return {key: _get(config, key) for key in schema_fields(type(config))}


_KIND = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _read_record(field: Field, value: Any) -> Any:
    """An element of a list of mappings, as its dataclass; every entry of it has to be there."""
    if dataclasses.is_dataclass(value):
        return value
    entries = schema_fields(field.kind)
    shape = f"write each element as {{{', '.join(f'{name}: {name.upper()}' for name in entries)}}}"
    if not isinstance(value, dict):
        raise Refused(f"has the element {plain(value) or 'null'}, which is no mapping", shape)
    wrong = [str(name) for name in value if name not in entries]
    missing = [name for name, entry in entries.items() if name not in value and entry.default is MISSING]
    if wrong or missing:
        which = f"the unknown entry {wrong[0]}" if wrong else f"no {missing[0]}"
        raise Refused(f"has an element with {which}", shape)
    values = {}
    for name, entry in entries.items():
        try:
            values[name] = read(entry, value[name]) if name in value else entry.default
        except Refused as refused:
            wrong_value = plain(value[name]) or "null"
            raise Refused(f"has an element whose {name}={wrong_value} {refused.wrong}", shape) from None
    return field.kind(**values)


def _list_example(field: Field) -> str:
    if field.holds_records:
        names = schema_fields(get_args(field.kind)[0])
        return f"[{{{','.join(f'{name}:{name.upper()}' for name in names)}}},...]"
    return "[a,b]" if get_args(field.kind) == (str,) else "[1,2]"


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
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return f"{{{','.join(f'{k}:{plain(v)}' for k, v in value.items())}}}" if value else ""
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
        if f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        found.append(Field(key, hint, optional, default, f.metadata.get("verbatim", False)))
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

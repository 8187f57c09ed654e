"""Reading a composed configuration leaf by leaf, so that one bad value does not hide the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlm.config.fields import Refused, find_field, mapping_of, read, schema_fields, sections
from mlm.config.names import alternatives, nearest

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass
class Leaves:
    """values: dotted key -> value in its field's type; refused: dotted key -> (what was given, why not)."""

    values: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, tuple[str | None, Refused]] = field(default_factory=dict)


def read_leaves(composed: DictConfig, examples: Mapping[str, Any], schema: type) -> Leaves:
    """Every leaf of composed: unknown keys, missing values, broken ${...} and wrong types are refused.

    examples holds values known to be valid, by key, for the remedies.
    """
    leaves = Leaves({key: {} for key, known in schema_fields(schema).items() if known.is_mapping})
    for key, node, name in _walk(composed, "", schema):
        shown = None
        try:
            value = _resolve(node, name, key)
            shown = "null" if value is None else str(value)
            known, mapping = find_field(key, schema), mapping_of(key, schema)
            if known is None:
                raise _no_such_key(key, schema)
            read_value = read(known, value, examples.get(key))
            if mapping is None:
                leaves.values[key] = read_value
            else:
                leaves.values[mapping.key][key.removeprefix(f"{mapping.key}.")] = read_value
        except Refused as refused:
            leaves.refused[key] = (shown, refused)
    return leaves


def _walk(node: DictConfig, prefix: str, schema: type) -> Iterator[tuple[str, DictConfig, Any]]:
    """(dotted key, node it stands in, its name there) of all that is neither section nor mapping."""
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    for name in node:
        key = prefix + str(name)
        try:
            child = node[name]
        except OmegaConfBaseException:
            child = None
        known = find_field(key, schema)
        if isinstance(child, DictConfig) and (known is None or known.is_mapping):
            yield from _walk(child, f"{key}.", schema)
        else:
            yield key, node, name


def _resolve(node: DictConfig, name: Any, key: str) -> Any:
    from omegaconf import ListConfig, OmegaConf
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    try:
        value = node[name]
        if isinstance(value, ListConfig):
            return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
        return value
    except MissingMandatoryValue:
        raise Refused("is not set", f"give it: {key}=VALUE") from None
    except OmegaConfBaseException as error:
        why = str(error).partition("\n")[0]
        raise Refused(f"refers to something that is not there ({why})", "correct the ${...}") from None


def _no_such_key(key: str, schema: type) -> Refused:
    if key in sections(schema):
        remedy = f"a choice of {key} belongs into the defaults list, as `override /{key}: NAME`"
        return Refused("is a section, not a value", remedy)
    close = nearest(key, schema_fields(schema))
    return Refused("is no such key", f"use {alternatives(close)}" if close else "remove it")

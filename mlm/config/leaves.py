"""Reading a composed configuration leaf by leaf, so that one bad value does not hide the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlm.config.fields import Refused, read, schema_fields, sections
from mlm.config.names import alternatives, nearest

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass
class Leaves:
    """values: dotted key -> value in its field's type; refused: dotted key -> (what was given, why not)."""

    values: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, tuple[str | None, Refused]] = field(default_factory=dict)


def read_leaves(composed: DictConfig, examples: Mapping[str, Any]) -> Leaves:
    """Every leaf of composed: unknown keys, missing values, broken ${...} and wrong types are refused.

    examples holds values known to be valid, by key, for the remedies.
    """
    leaves = Leaves()
    for key, node, name in _walk(composed, ""):
        shown = None
        try:
            value = _resolve(node, name, key)
            shown = "null" if value is None else str(value)
            if key not in schema_fields():
                raise _no_such_key(key)
            leaves.values[key] = read(schema_fields()[key], value, examples.get(key))
        except Refused as refused:
            leaves.refused[key] = (shown, refused)
    return leaves


def _walk(node: DictConfig, prefix: str) -> Iterator[tuple[str, DictConfig, Any]]:
    """(dotted key, mapping it stands in, its name there) of everything that is not a section."""
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    for name in node:
        key = prefix + str(name)
        try:
            child = node[name]
        except OmegaConfBaseException:
            child = None
        if isinstance(child, DictConfig) and key not in schema_fields():
            yield from _walk(child, f"{key}.")
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


def _no_such_key(key: str) -> Refused:
    if key in sections():
        remedy = f"a choice of {key} belongs into the defaults list, as `override /{key}: NAME`"
        return Refused("is a section, not a value", remedy)
    close = nearest(key, schema_fields())
    return Refused("is no such key", f"use {alternatives(close)}" if close else "remove it")

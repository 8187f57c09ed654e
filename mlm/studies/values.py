"""Overrides as text: values as they would be typed, labels that people and file systems can read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST_LABEL = 120
"""Characters; file systems take 255 bytes, and a label stands in tables as well."""


def typed(value: Any) -> str:
    """A YAML value as it would be typed after the `=`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{','.join(typed(v) for v in value)}]"
    return str(value)


def key_of(override: str) -> str:
    """The key that an override sets: train.steps of train.steps=3."""
    return override.partition("=")[0].strip()


def labels(points: Sequence[Mapping[str, str]]) -> list[str]:
    """A readable, unique name for each point, which is also a sound name of a directory.

    points: what each one varies, by key. Keys lose their section where that leaves no doubt.
    """
    keys = list(dict.fromkeys(key for point in points for key in point))
    short = [key.rpartition(".")[2] for key in keys]
    names = {key: name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)}
    found: list[str] = []
    for point in points:
        label = ",".join(f"{names[key]}={_safe(value)}" for key, value in point.items()) or "run"
        if len(label) > _LONGEST_LABEL or label in found:
            # Two values may differ only in what a file's name cannot hold.
            digest = hashlib.sha256(repr(sorted(point.items())).encode()).hexdigest()[:8]
            label = f"{label[:_LONGEST_LABEL]}-{digest}"
        found.append(label)
    return found


def _safe(value: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", value.strip("[]'\" ")) or "null"

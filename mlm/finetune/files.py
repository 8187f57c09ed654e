"""Predictions as JSONL, one example a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from mlm.files import write_whole


def write_predictions(path: Path, predictions: Sequence[Mapping[str, Any]]) -> None:
    """The file, whole or not at all; its folder is made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, b"".join(orjson.dumps(row) + b"\n" for row in predictions))

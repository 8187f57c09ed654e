"""Small inputs for prepare, and a look at what it made."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlm.corpus.preparing.options import Options
from mlm.corpus.preparing.prepare import Outcome, prepare
from mlm.data.indexed import IndexedDataset

Prepare = Callable[..., Outcome]


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_bytes("".join(json.dumps(record) + "\n" for record in records).encode())
    return path


def preparer(folder: Path) -> Prepare:
    """Prepares input files as folder/made, with the byte tokenizer and one worker unless told otherwise."""

    def run(*inputs: Path, **options: Any) -> Outcome:
        chosen = {"prefix": folder / "made", "tokenizer": "byte", "workers": 1, **options}
        return prepare(Options(inputs=tuple(map(str, inputs)), **chosen), say=lambda line: None)

    return run


def dataset(folder: Path, name: str = "made_text_document") -> IndexedDataset:
    opened = IndexedDataset(folder / name)
    opened.verify()
    return opened


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith((".jsonl", ".txt", ".gz")))


def words(rng: random.Random, count: int) -> str:
    return " ".join("".join(rng.choices("abcdefgh日é", k=rng.randint(1, 9))) for _ in range(count))

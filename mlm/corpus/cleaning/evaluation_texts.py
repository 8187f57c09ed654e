"""The texts of evaluation sets, by name of a task or from files, as items to look for in training text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mlm.corpus.cleaning.contamination import EvaluationSet, Item
from mlm.corpus.reading.inputs import BOM, DAMAGED, Source, damaged, find_sources, open_source
from mlm.data.bad_data import BadData
from mlm.errors import ConfigError, Problem
from mlm.eval.files import FOLDER_VARIABLE, find_files
from mlm.eval.tasks import TASKS

NAMES = tuple(name for name, task in TASKS.items() if any(file.sha256 for file in task.default_files))
"""Tasks whose files are published and found by name, as mlm-eval finds them."""


def evaluation_set(against: Sequence[str], n: int) -> EvaluationSet:
    """The n-grams of all texts that `against` names: tasks, or files of any kind that can be read.

    Raises ConfigError with every name that leads to no file, and BadData when one cannot be read.
    """
    sources, problems = [], []
    for name in against:
        try:
            sources += _task_sources(name) if name in NAMES else find_sources([name]).sources
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    known = EvaluationSet((item for source in sources for item in _items(source)), n)
    if known.items == known.short:
        wrong = f"holds no text of {n} words or more ({known.items:,} texts)"
        raise ConfigError(Problem(f"--against {' '.join(against)}", wrong, f"use a smaller --ngram than {n}"))
    return known


def _task_sources(name: str) -> list[Source]:
    paths, problems = find_files(name, TASKS[name].default_files, {})
    if problems:
        remedy = f"mlm-data fetch {name}, set {FOLDER_VARIABLE}, or name the files themselves"
        missing = ", ".join(file.name for file in TASKS[name].default_files if file.required)
        raise ConfigError(Problem(f"--against {name}", f"finds no {missing} here", remedy))
    return [
        Source(str(path), "jsonl" if path.suffix == ".jsonl" else "txt", size=path.stat().st_size)
        for path in paths.values()
    ]


def _items(source: Source) -> Iterator[Item]:
    """Every line of a text, every string of a JSON or Parquet record, in one item a record."""
    if source.format == "parquet":
        yield from _rows(source)
        return
    try:
        with open_source(source) as file:
            raw = file.read()
        text = raw.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        wrong = f"is not UTF-8 (0x{raw[error.start]:02x} is byte {error.start + 1:,})"
        raise BadData(source.name, wrong, "convert it, for instance with iconv") from None
    except DAMAGED as error:
        raise damaged(source, error, 0) from None
    name = Path(source.path).name
    if source.format == "json":
        whole = _parsed(text, source.name)
        records = whole if isinstance(whole, list) else [whole]
        yield from (Item(f"{name}, item {n}", _strings(record)) for n, record in enumerate(records, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{name}:{number}"
            is_json = source.format == "jsonl"
            yield Item(where, _strings(_parsed(line, f"{source.name}:{number}")) if is_json else line)


def _rows(source: Source) -> Iterator[Item]:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_table

    try:
        rows = read_table(source.path).to_pylist()
    except (ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise BadData(
            source.name, f"is no Parquet file that can be read ({reason})", "copy it again"
        ) from None
    for number, row in enumerate(rows, 1):
        yield Item(f"{Path(source.path).name}, row {number}", _strings(row))


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadData(where, f"is not JSON ({error})", "give a file of JSON records, or of text") from None


def _strings(value: Any) -> str:
    """All strings in a JSON value, as paragraphs: passages, questions and answers alike."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return "\n".join(filter(None, map(_strings, value)))
    return ""

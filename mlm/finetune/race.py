"""RACE's files: folders {middle,high} of JSON texts as they are published, or one JSONL of such records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlm.data.bad_data import BadData
from mlm.finetune.examples import ChoiceExample, Damage, is_text

PARTS = ("middle", "high")
LETTERS = "ABCD"
_LAYOUT = "give a folder like RACE/train with middle/*.txt and high/*.txt, or a .jsonl file of such records"


def read_race(path: Path) -> list[ChoiceExample]:
    """Every question, in the order of the files' names and of the questions in them.

    path: RACE/train, RACE/dev or RACE/test, one of their folders middle or high, or a JSONL file. A folder's
    name tells whether its questions are of middle or high school, in JSONL the record's id if it has one.
    Raises BadData where there is nothing to read, ConfigError naming file and line of every damaged record.
    """
    damage, examples = Damage(), []
    for where, stem, part, line in _records(path):
        record = _record(line, where, damage)
        if record is not None:
            examples += _questions(record, where, stem, part, damage)
    damage.refuse(str(path))
    if not examples:
        raise BadData(str(path), "holds no question", _LAYOUT)
    return examples


def _records(path: Path) -> Iterator[tuple[str, str, str | None, str]]:
    """(where it is, name for ids, part, JSON text) of each record."""
    try:
        for file, part in _files(path):
            lines = file.read_text(encoding="utf-8").split("\n")
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    stem = f"{file.stem}.{number}" if file == path else file.stem
                    yield f"{file}, line {number:,}", stem, part, line
    except OSError as error:
        raise BadData(str(path), f"cannot be read ({error.strerror})", _LAYOUT) from None
    except UnicodeDecodeError:
        raise BadData(str(file), "is not UTF-8", "fetch it again") from None


def _files(path: Path) -> list[tuple[Path, str | None]]:
    if path.is_file():
        return [(path, None)]
    if path.name in PARTS:
        folders: list[tuple[Path, str | None]] = [(path, path.name)]
    else:
        folders = [(path / part, part) for part in PARTS if (path / part).is_dir()]
    found = [
        (file, part) for folder, part in folders for file in sorted(folder.glob("*.txt"), key=_by_number)
    ]
    if not found:
        wrong = "is no such file or folder" if not path.exists() else "has no middle/*.txt or high/*.txt"
        raise BadData(str(path), wrong, _LAYOUT)
    return found


def _by_number(file: Path) -> tuple[int, str]:
    """RACE's files are numbered without leading zeros."""
    return (int(file.stem) if file.stem.isascii() and file.stem.isdigit() else 0), file.stem


def _record(line: str, where: str, damage: Damage) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        damage.add(where, f"is not JSON ({getattr(error, 'msg', error)})", "mend it, or leave it out")
        return None
    if not isinstance(record, dict):
        damage.add(where, "is not one JSON object", 'write {"article": ..., "questions": ..., ...}')
        return None
    return record


def _questions(
    record: dict[str, Any], where: str, stem: str, part: str | None, damage: Damage
) -> list[ChoiceExample]:
    article, questions = record.get("article"), record.get("questions")
    options, answers = record.get("options"), record.get("answers")
    if not isinstance(article, str) or not is_text(article):
        damage.add(where, 'has no text under the key "article"', "mend it, or leave it out")
        return []
    if not (isinstance(questions, list) and isinstance(options, list) and isinstance(answers, list)):
        wrong = 'has no lists under the keys "questions", "options" and "answers"'
        damage.add(where, wrong, "mend it, or leave it out")
        return []
    if not len(questions) == len(options) == len(answers):
        wrong = f"has {len(questions)} questions, {len(options)} lists of options and {len(answers)} answers"
        damage.add(where, wrong, "give as many of each")
        return []
    name = record.get("id")
    if isinstance(name, str) and name:
        stem = name.removesuffix(".txt")
    if part is None:
        part = next((each for each in PARTS if stem.startswith(each)), None)
    elif not stem.startswith(part):
        stem = f"{part}{stem}"
    found: list[ChoiceExample] = []
    for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True)):
        flaw = _wrong(question, choices, answer)
        if flaw is not None:
            damage.add(f"{where}, question {number + 1}", flaw, "mend it, or leave it out")
            continue
        right = LETTERS.index(answer)
        found.append(ChoiceExample(f"{stem}-{number}", article, question, tuple(choices), right, part))
    return found


def _wrong(question: Any, options: Any, answer: Any) -> str | None:
    if not is_text(question):
        return "is not a text"
    # Options that were pictures or another script are empty in the published files, and still options.
    if not isinstance(options, list) or not all(option == "" or is_text(option) for option in options):
        return "has options that are not texts"
    if len(options) != len(LETTERS):
        return f"has {len(options)} options, not {len(LETTERS)}"
    if not isinstance(answer, str) or len(answer) != 1 or answer not in LETTERS:
        return f"has the answer {answer!r}, not one of {', '.join(LETTERS)}"
    return None

"""The files tasks read: what each is, where it is looked for, and what was read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm.data.bad_data import BadData
from mlm.data.cache import cache_root, sha256_file
from mlm.data.text import read_utf8
from mlm.errors import Problem

FOLDER_VARIABLE = "MLM_DATA"
UNPUBLISHED = "not the published file, its sha256 differs"
"""Note in the protocol of a row measured on another file than the figures of others."""


@dataclass(frozen=True)
class DataFile:
    """A file of a task. role: its name among the task's files; origin: what it is, in words.

    name, size (bytes) and sha256 are those of the published file; without a sha256 any file will do and
    only the user can name it. Without a file that is not required, the rows made of it are left out.
    """

    role: str
    name: str = ""
    size: int = 0
    sha256: str = ""
    origin: str = ""
    required: bool = True


@dataclass(frozen=True)
class Source:
    """A file that was read. published: whether it is, byte for byte, the one its DataFile describes."""

    path: Path
    text: str
    size: int
    sha256: str
    published: bool

    def record(self) -> dict[str, Any]:
        """What a result says of the file: JSON scalars."""
        return {
            "file": self.path.name,
            "file_bytes": self.size,
            "file_sha256": self.sha256,
            "file_published": self.published,
        }


def file_keys(task: str, files: Sequence[DataFile]) -> dict[str, DataFile]:
    """A task's files by their keys in task_paths: TASK is its first, TASK.ROLE any further one."""
    return {f"{task}.{file.role}" if number else task: file for number, file in enumerate(files)}


def find_files(
    task: str, files: Sequence[DataFile], given: Mapping[str, str], prefix: str = ""
) -> tuple[dict[str, Path], list[Problem]]:
    """The paths of a task's files by role, and a problem for each that is required or named and not there.

    given: task_paths; prefix: of that key in messages. A file that is not given is looked for beside one
    that is, then in $MLM_DATA (by name, there and one folder down), then in the folder `eval` of the cache.
    In the last two it must be the published file; what the user names may be any.
    """
    paths: dict[str, Path] = {}
    problems: list[Problem] = []
    keys = file_keys(task, files)
    named = {key: Path(given[key]).expanduser().absolute() for key in keys if given.get(key)}
    for key, file in keys.items():
        full_key = f"{prefix}task_paths.{key}"
        if key in named:
            path = named[key]
            if path.is_file():
                paths[file.role] = path
            else:
                wrong = "is a folder, not a file" if path.is_dir() else "is no such file"
                problems.append(Problem(f"{full_key}={given[key]}", wrong, f"give {_wanted(file)}"))
            continue
        if not file.sha256:
            problems.append(Problem(full_key, "is not set", f"give {_wanted(file)}, {full_key}=PATH"))
            continue
        beside = [path.parent / file.name for path in named.values()]
        candidates = _candidates(file)
        found = next((path for path in beside if path.is_file()), None)
        found = found or next((path for path in candidates if _is_published(path, file)), None)
        if found:
            paths[file.role] = found
        elif candidates:
            wrong = f"is not the published file of that name ({_identity(file)})"
            remedy = f"fetch it again, or name it with {full_key}=PATH to use it as it is"
            problems.append(Problem(str(candidates[0]), wrong, remedy))
        elif file.required:
            problems.append(_missing(full_key, file))
    return paths, problems


def read_source(path: Path, file: DataFile) -> Source:
    """The whole file as text, line ends as they are; raises BadData as mlm.data.text.read_utf8."""
    raw, text = read_utf8(path, str(path))
    sha256 = hashlib.sha256(raw).hexdigest()
    return Source(path, text, len(raw), sha256, published=sha256 == file.sha256)


def jsonl_texts(source: Source) -> list[tuple[int, str]]:
    """The `text` of each line of a JSONL file, with its line number from 1; blank lines are passed over.

    Raises BadData naming file and line where a line is not JSON or has no text.
    """
    texts = []
    for number, line in enumerate(source.text.split("\n"), start=1):
        if not line.strip():
            continue
        where = line_of(source, number)
        remedy = 'give one object a line, {"text": "..."}'
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise BadData(where, "is not JSON", remedy) from None
        text = entry.get("text") if isinstance(entry, dict) else None
        if not isinstance(text, str):
            raise BadData(where, 'has no string under the key "text"', remedy)
        if not text.strip():
            raise BadData(where, 'has a blank "text"', "leave the line out")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadData(where, "holds half a surrogate pair, which is no character", remedy) from None
        texts.append((number, text))
    return texts


def line_of(source: Source, number: int) -> str:
    """Where a problem on a line is."""
    return f"{source.path}, line {number:,}"


def _candidates(file: DataFile) -> list[Path]:
    found = []
    if folder := os.environ.get(FOLDER_VARIABLE):
        root = Path(folder).expanduser().absolute()
        found += [root / file.name, *sorted(root.glob(f"*/{file.name}"))]
    found.append(_cache_folder() / file.name)
    return [path for path in found if path.is_file()]


def _cache_folder() -> Path:
    return cache_root(None) / "eval"


def _is_published(path: Path, file: DataFile) -> bool:
    try:
        return path.stat().st_size == file.size and sha256_file(path) == file.sha256
    except OSError:
        return False


def _missing(key: str, file: DataFile) -> Problem:
    folder = os.environ.get(FOLDER_VARIABLE)
    variable = f"${FOLDER_VARIABLE}={folder}" if folder else f"${FOLDER_VARIABLE} (not set)"
    return Problem(
        key,
        f"is not set, and {file.name} ({_identity(file)}) is neither in {variable} nor in {_cache_folder()}",
        f"mlm-data fetch gets it ({file.origin}); or set {key}=PATH, or put it into one of these folders",
    )


def _identity(file: DataFile) -> str:
    return f"{file.size:,} bytes, sha256 {file.sha256}"


def _wanted(file: DataFile) -> str:
    if not file.sha256:
        return "a text file, or a .jsonl file with a text in each line"
    return f"the path of {file.name} ({_identity(file)}; {file.origin})"

"""The checkpoints/ folder of a run: which are complete, which is the newest, which may go. No torch."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from mlm.checkpoint.best import read_best
from mlm.checkpoint.manifest import MANIFEST, damage
from mlm.errors import CheckpointError
from mlm.files import write_whole

LATEST = "latest"
"""A file with the name of the newest complete checkpoint; moved only when that one is whole."""

TEMPORARY = ".tmp"
"""Ends the name of what is still being written; what has it when nobody writes is to be removed."""

_STEP = re.compile(r"step_(\d+)")


def step_folder(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step_{step}"


def aside(directory: Path) -> Path:
    """Where it is written until it is whole."""
    return directory.with_name(f"{directory.name}{TEMPORARY}")


def step_of(directory: Path) -> int | None:
    """The step of a directory step_N, None for any other name."""
    match = _STEP.fullmatch(directory.name)
    return int(match[1]) if match else None


def complete_steps(folder: Path) -> list[Path]:
    """Directories step_N with a manifest, oldest first; whether all is whole is `damage`'s to say.

    Raises CheckpointError when the folder is there and cannot be read.
    """
    return [path for path in _steps(folder) if (path / MANIFEST).is_file()]


@dataclass(frozen=True)
class Newest:
    """The newest whole checkpoint; the newer ones that are not, and what each was passed over for."""

    directory: Path | None
    passed_over: list[str]
    damaged: list[Path]


def newest(folder: Path, *, contents: bool = True) -> Newest:
    """Look from the newest back until one is whole; contents: every byte is compared with its checksum."""
    passed_over: list[str] = []
    damaged: list[Path] = []
    for directory in reversed(_steps(folder)):
        found = damage(directory, contents=contents)
        if not found:
            return Newest(directory, passed_over, damaged)
        damaged.append(directory)
        passed_over += [f"{directory.name}: {sentence}" for sentence in found]
    return Newest(None, passed_over, damaged)


def _steps(folder: Path) -> list[Path]:
    """Raises CheckpointError for a folder that cannot be listed, which glob would take for an empty one."""
    try:
        paths = [folder / name for name in os.listdir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read ({error.strerror})") from None
    found = [(step, path) for path in paths if (step := step_of(path)) is not None]
    return [path for _, path in sorted(found)]


def publish(directory: Path) -> None:
    """Give a checkpoint that was written aside its name, and point `latest` at it."""
    os.rename(aside(directory), directory)
    write_whole(directory.parent / LATEST, f"{directory.name}\n", durable=True)


def retire(folder: Path, *, keep_last: int, keep_every: int, just_written: Path) -> list[Path]:
    """Delete what need not be kept and return it: all but the newest keep_last and multiples of keep_every.

    keep_every: in steps; 0 keeps none for its number. Called when `just_written` is complete, and never
    deletes it, nor the best one. A deletion that is cut short leaves no manifest, so nothing that looks like
    a checkpoint.
    """
    complete = complete_steps(folder)
    kept = {just_written, *complete[-max(1, keep_last) :]}
    best = read_best(folder)
    if best is not None:
        kept.add(step_folder(folder, best.step))
    gone = []
    for directory in complete:
        step = step_of(directory)
        assert step is not None, f"{directory} is a step directory"
        if directory in kept or (keep_every and step % keep_every == 0):
            continue
        (directory / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        gone.append(directory)
    return gone

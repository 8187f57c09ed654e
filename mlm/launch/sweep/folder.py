"""The folder of a sweep: where it is, who may write there, and which of its runs need not run again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mlm.errors import ConfigError, Problem
from mlm.launch import rundir
from mlm.studies.record import (
    FILE,
    PENDING,
    REFUSED,
    SUBMITTED,
    UNFINISHED,
    RunState,
    Study,
    read_study,
)
from mlm.studies.values import key_of

_KEY = "sweep_dir"


def choose_folder(given: str | None, study: str | None, overrides: Sequence[str], cwd: Path) -> Path:
    """The given folder, or one that the same command finds again: runs/<study>, runs/sweep-<hash>.

    How processes are launched does not count, so that a dry run names the folder that the run will have.
    """
    if given is not None:
        return cwd / given
    if study is not None:
        return cwd / "runs" / study
    counted = sorted(word for word in overrides if key_of(word) not in (_KEY, "launch", "launch.mode"))
    digest = hashlib.sha256("\n".join(counted).encode()).hexdigest()[:8]
    return cwd / "runs" / f"sweep-{digest}"


def folder_problems(folder: Path, name: str) -> list[Problem]:
    """Why a study of that name cannot write there: a file in the way, no permission, files of others."""
    where = f"{_KEY}={folder}"
    if not (folder / FILE).is_file():
        return rundir.problems(folder, _KEY)
    try:
        there = read_study(folder)
    except ConfigError as error:
        return error.problems
    if there.name != name:
        wrong = f"already holds {there.name}, and this is {name}"
        return [Problem(where, wrong, f"use {_KEY}={rundir.free(folder)}")]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Problem(where, "cannot be written", "name a directory you can write to")]
    return []


def carry_over(study: Study, is_queued: Callable[[Path], bool]) -> None:
    """Take from the folder's study.json, if there is one, what became of the same runs before.

    They are those of the same point, repeat and configuration. is_queued: whether the job that a run's
    directory belongs to is waiting or running. Raises ConfigError when study.json cannot be read.
    """
    if not (study.folder / FILE).is_file():
        return
    before = read_study(study.folder)
    for point in study.points:
        old = before.point(point.label)
        for index, run in enumerate(point.runs):
            if old is not None and index < len(old.runs) and old.runs[index].hash == run.hash:
                point.runs[index] = _as_before(old.runs[index], run, study, is_queued)


def _as_before(old: RunState, new: RunState, study: Study, is_queued: Callable[[Path], bool]) -> RunState:
    if old.status in (PENDING, REFUSED):
        return new  # the machine may be another one by now
    if study.is_result(old) or (old.status == SUBMITTED and is_queued(study.run_dir(old))):
        return old
    # It is to be tried again, by the command as it is now.
    before = replace(new, dir=old.dir, status=old.status, exit_code=old.exit_code, message=old.message)
    if old.status == SUBMITTED:
        before.status, before.message = UNFINISHED, "its job has left the queue, but no summary"
    return before


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Make the folder and hold it against a second sweep; yields the descriptor that holds it.

    A run that inherits the descriptor holds the folder too, as long as it lives. Raises ConfigError when the
    folder cannot be made or another sweep is at work in it.
    """
    where = f"{_KEY}={folder}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        wrong = f"cannot be made ({error.strerror})"
        raise ConfigError(Problem(where, wrong, "name a directory you can write to")) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        wrong = "is being written by another mlm-train -m"
        raise ConfigError(Problem(where, wrong, f"wait for it, or use another {_KEY}")) from None
    except OSError:
        pass  # some network file systems lock no directories; the record is replaced as a whole even so
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def shown_path(path: Path) -> str:
    """As one would type it here: relative when it lies below the current directory."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative

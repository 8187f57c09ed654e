"""The directory a run writes to: chosen once, made once, never one that holds something already."""

from __future__ import annotations

import itertools
import os
import re
from datetime import datetime
from pathlib import Path

from mlm.errors import ConfigError, Problem
from mlm.launch.lock import LAUNCHER_LOCK

_WRITABLE = "name a directory you can write to"
JOB_FILE, JOB_ID_FILE = "job.sbatch", "slurm_job_id"
"""What a submitted job's directory holds before the job has started, beside slurm-ID.log."""
_OF_A_RUN = ("config.yaml", "resume.json", LAUNCHER_LOCK)
"""Any of them makes a directory a run's; the lock is what a run writes first."""


def choose(run_dir: str | None, model: str, cwd: Path, now: datetime) -> Path:
    """The given directory, or runs/<model>-<date>-<time> under cwd, with -2, -3, ... when it is taken."""
    if run_dir is not None:
        return cwd / Path(run_dir).expanduser()
    name = re.sub(r"[^\w.+-]+", "_", model) or "run"
    return free(cwd / "runs" / f"{name}-{now:%Y%m%d-%H%M%S}")


def free(path: Path) -> Path:
    """The path, or with -2, -3, ... when there is something of that name."""
    if not path.exists():
        return path
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(candidate for candidate in numbered if not candidate.exists())


def holds_run(path: Path) -> bool:
    """Whether a run was begun in that directory, however little there is of it."""
    try:
        return any((path / name).exists() for name in _OF_A_RUN)
    except OSError:
        return False


def problems(
    path: Path, key: str = "run_dir", job_id: str | None = None, *, goes_on: bool = False
) -> list[Problem]:
    """Why nothing can be written there; an empty directory is as good as none. key: what named it.

    job_id: the Slurm job that this process is part of; the files of its own submission do not count.
    goes_on: whether the run that is there already is continued.
    """
    where = f"{key}={path}"
    try:
        if path.exists() and not path.is_dir():
            return [Problem(where, "is a file", "name a directory that does not exist yet")]
        if not goes_on and path.is_dir() and any(path.iterdir()) and not _is_submission(path, job_id):
            is_run = key == "run_dir" and holds_run(path)
            what = "a run" if is_run else "files"
            wrong = f"already holds {what}, which is never overwritten"
            going_on = ", or resume=auto to continue it" if is_run else ""
            return [Problem(where, wrong, f"use {key}={free(path)}{going_on}")]
        parent = next(folder for folder in (path, *path.parents) if folder.exists())
    except OSError as error:
        return [Problem(where, f"cannot be used ({error.strerror})", _WRITABLE)]
    if not parent.is_dir():
        return [Problem(where, f"cannot be made: {parent} is a file", _WRITABLE)]
    if not os.access(parent, os.W_OK | os.X_OK):
        return [Problem(where, f"cannot be written: no permission in {parent}", _WRITABLE)]
    return []


def _is_submission(path: Path, job_id: str | None) -> bool:
    """Whether a directory holds the files of the submission of a job, and nothing else."""
    names = {entry.name for entry in path.iterdir()}
    try:
        written = (path / JOB_ID_FILE).read_text().strip()
    except OSError:
        return False
    logs = {name for name in names if re.fullmatch(r"slurm-\d+\.log", name)}
    return written == job_id and names - logs == {JOB_FILE, JOB_ID_FILE}


def create(path: Path, *, given: bool, key: str = "run_dir", job_id: str | None = None) -> Path:
    """Make the directory and return it; one chosen by default moves on to the next free name in a race.

    job_id: as in problems. Raises ConfigError when it cannot be made or, given, is no longer empty.
    """
    while True:
        try:
            path.mkdir(parents=True, exist_ok=given)
            break
        except FileExistsError:
            if given:
                break
            path = free(path)
        except OSError as error:
            wrong = f"cannot be made ({error.strerror})"
            raise ConfigError(Problem(f"{key}={path}", wrong, _WRITABLE)) from error
    found = problems(path, key, job_id)
    if found:
        raise ConfigError(found)
    return path

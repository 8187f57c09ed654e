"""One job at a time in a run directory: the launcher holds one lock, every worker a share of another.

A launcher that is killed takes its lock along, and its workers need a moment to follow it. Until the last of
them is gone, what they write could still end up among the files of the next job.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from mlm.errors import ConfigError, Problem

LAUNCHER_LOCK, WORKERS_LOCK = "lock", "workers.lock"
WORKERS_LEAVE_S = 15.0
"""Seconds that workers whose launcher is dead have to end, before the directory counts as in use."""
POLL_S = 0.05

_held: list[int] = []
"""Descriptors that stay open as long as this process lives."""


def hold(run_dir: Path) -> None:
    """Keep other launchers out of run_dir until this process ends, workers of an earlier one included.

    Raises ConfigError when another job is in it. On a file system without locks nothing is kept out.
    """
    try:
        handle = _open(run_dir / LAUNCHER_LOCK)
    except OSError as error:
        wrong = f"cannot be written ({error.strerror})"
        raise ConfigError(Problem(f"run_dir={run_dir}", wrong, "name a directory you can write to")) from None
    if not _locked(handle, fcntl.LOCK_EX, 0):
        who = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another job"
        os.close(handle)
        raise ConfigError(_in_use(run_dir, f"is in use by {who}"))
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    workers = _open(run_dir / WORKERS_LOCK)
    try:
        if not _locked(workers, fcntl.LOCK_EX, WORKERS_LEAVE_S):
            os.close(handle)
            raise ConfigError(_in_use(run_dir, "is in use by workers of an earlier job"))
    finally:
        os.close(workers)
    _held.append(handle)


def hold_as_worker(run_dir: Path) -> None:
    """Say until this process ends that a worker is at work in run_dir."""
    handle = _open(run_dir / WORKERS_LOCK)
    # Only a new launcher's glance can be in the way, and it lasts no longer than this.
    _locked(handle, fcntl.LOCK_SH, WORKERS_LEAVE_S)
    _held.append(handle)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def _locked(handle: int, kind: int, timeout_s: float) -> bool:
    """Whether the lock could be had within the time; true as well where there are no locks."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            return True
        time.sleep(POLL_S)


def _in_use(run_dir: Path, wrong: str) -> Problem:
    return Problem(f"run_dir={run_dir}", wrong, "wait for its end, or name another run_dir")

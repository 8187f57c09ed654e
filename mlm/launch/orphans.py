"""Workers must not outlive the process that started them, even when that one is killed without warning."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from mlm.failures import LAUNCHER_PID

_PR_SET_PDEATHSIG = 1
POLL_S = 0.5
GRACE_S = 5.0
"""Seconds a worker has to end by itself, saving what it can, once its parent has gone."""


def watch_parent(
    parent: int | None = None,
    *,
    getppid: Callable[[], int] = os.getppid,
    end: Callable[[], None] | None = None,
) -> threading.Thread | None:
    """End this process soon after its parent has died: SIGTERM to itself, after GRACE_S a kill.

    parent: pid to expect; None: MLM_LAUNCHER_PID, else the present parent. Returns the watching daemon
    thread, or None when there is no parent to watch (pid 1 adopts everybody). Call it in the main
    thread, as early as possible.
    """
    if parent is None:
        parent = int(os.environ.get(LAUNCHER_PID, getppid()))
        if parent == 1 and LAUNCHER_PID not in os.environ:
            return None
    if end is None:
        end = _end_self
        if LAUNCHER_PID in os.environ:
            _ask_kernel()
    thread = threading.Thread(target=_watch, args=(parent, getppid, end), name="watch_parent", daemon=True)
    thread.start()
    return thread


def _watch(parent: int, getppid: Callable[[], int], end: Callable[[], None]) -> None:
    while getppid() == parent:
        time.sleep(POLL_S)
    end()


def _ask_kernel() -> None:
    """On Linux the kernel delivers SIGTERM at the parent's death even while this process holds the GIL.

    Only under our own launcher, which starts workers from its main thread: the kernel means the thread
    that forked, and other starters may fork from one that ends early.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end_self() -> None:
    print("mlm-train: the launcher has gone, this worker ends too", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    # A worker leads its own process group; its helpers (loggers, compilers) go with it.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

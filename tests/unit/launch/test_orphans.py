from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from mlm.failures import LAUNCHER_PID
from mlm.launch import orphans


def test_the_end_comes_when_the_parent_changes_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "POLL_S", 0.01)
    parents, ended = [77], threading.Event()
    thread = orphans.watch_parent(77, getppid=lambda: parents[0], end=ended.set)
    assert thread is not None
    assert not ended.wait(0.1)
    parents[0] = 1
    assert ended.wait(5)
    thread.join(5)


def test_a_process_adopted_by_init_from_the_start_watches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LAUNCHER_PID, raising=False)
    assert orphans.watch_parent(getppid=lambda: 1, end=lambda: None) is None


WORKER = """
import os, signal, sys, time
from mlm.launch import orphans
orphans.POLL_S, orphans.GRACE_S = 0.05, 0.3
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
orphans.watch_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""
LAUNCHER = """
import os, subprocess, sys, time
os.environ["MLM_LAUNCHER_PID"] = str(os.getpid())
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], start_new_session=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["obedient", "stubborn"])
def test_a_worker_is_gone_seconds_after_its_launcher_was_killed(kind: str) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, WORKER, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with launcher:
        assert launcher.stdout is not None
        worker = int(launcher.stdout.readline())
        launcher.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while _alive(worker) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert not _alive(worker)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process whose adopter is slow to collect it is dead all the same.
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return not state.stdout.strip().startswith("Z") and bool(state.stdout.strip())

"""A run directory is one job's: its launcher's until it ends, and until the last of its workers has gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlm.errors import ConfigError
from mlm.launch import lock


def holder(call: str, run_dir: Path) -> subprocess.Popen[str]:
    """A process that has done the call and lives until its input is closed."""
    program = (
        f"from pathlib import Path; from mlm.launch import lock; lock.{call}(Path({str(run_dir)!r})); "
        "print('held', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def refusal(run_dir: Path) -> str:
    """Asked for in another process: what is held is held until a process ends."""
    program = (
        "from pathlib import Path; from mlm.launch import lock; from mlm.errors import ConfigError\n"
        "lock.WORKERS_LEAVE_S = 0.3\n"
        f"try: lock.hold(Path({str(run_dir)!r}))\n"
        "except ConfigError as error: print(error)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_second_launcher_is_refused_and_told_who_is_there_until_the_first_is_killed(tmp_path):
    first = holder("hold", tmp_path)
    said = refusal(tmp_path)
    assert said.startswith(f"run_dir={tmp_path} is in use by process {first.pid} on ")
    first.kill()
    first.communicate()
    assert refusal(tmp_path) == ""


def test_workers_that_have_lost_their_launcher_keep_the_next_one_out_until_the_last_has_gone(tmp_path):
    workers = [holder("hold_as_worker", tmp_path) for _ in range(2)]
    for worker in workers:
        assert "in use by workers of an earlier job" in refusal(tmp_path)
        worker.kill()
        worker.communicate()
    assert refusal(tmp_path) == ""


def test_workers_get_in_beside_their_own_launcher(tmp_path):
    launcher = holder("hold", tmp_path)
    worker = holder("hold_as_worker", tmp_path)
    for process in (launcher, worker):
        process.kill()
        process.communicate()


def test_a_directory_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"run_dir=\S+ cannot be written \(No such file or directory\)"):
        lock.hold(tmp_path / "nothing")

"""launch=slurm in an allocation: how a step ended, and what is said of it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from mlm.launch.slurm.job import why_cancelled
from mlm.launch.slurm.run import suspects
from mlm.launch.slurm.step import ended_tasks, true_code
from tests.unit.launch.slurm_commands import FakeSlurm, submit

# Lines as Slurm 22.05 writes them.
KILLED_BY_SRUN = [
    "srun: error: n1: task 1: Exited with exit code 1",
    "srun: launch/slurm: _step_signal: Terminating StepId=8.0",
    "slurmstepd-n1: error: *** STEP 8.0 ON n1 CANCELLED AT 2026-12-01T09:44:15 ***",
    "srun: error: n1: task 0: Terminated",
    "srun: Force Terminated StepId=8.0",
]


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        (KILLED_BY_SRUN, {1: 1, 0: -15}),
        (["srun: error: n1: tasks 4-7,9: Exited with exit code 75"], {4: 75}),
        (["srun: error: n1: task 0: Killed", "srun: error: n2: task 1: Segmentation fault"], {0: -9, 1: -11}),
        (["srun: error: Unable to create step for job 11: More processors requested than permitted"], {}),
    ],
)
def test_srun_tells_which_task_ended_first(lines: list[str], ends: dict[int, int]) -> None:
    found = ended_tasks(lines)
    assert list(found.items()) == list(ends.items()), "in this order"


@pytest.mark.parametrize(
    ("code", "lines", "files", "expected"),
    [
        (0, [], [], 0),
        (143, KILLED_BY_SRUN, ["config.yaml"], 1),
        (137, ["srun: error: n1: task 0: Killed"], ["config.yaml"], 137),
        (137, ["srun: error: n1: task 0: Killed"], ["config.yaml", "errors/rank_1.json"], 1),
        (143, ["srun: error: n1: tasks 0-1: Exited with exit code 75"], ["config.yaml"], 75),
        (143, ["srun: error: n1: task 0: Exited with exit code 2"], [], 2),
        (1, ["srun: error: Only allocated 1 nodes asked for 2"], [], 2),
        (5, [], ["config.yaml"], 5),
    ],
)
def test_the_exit_code_is_that_of_the_cause(
    tmp_path: Path, code: int, lines: list[str], files: list[str], expected: int
) -> None:
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        failure = {
            "rank": 1,
            "host": "n1",
            "time_s": 1.0,
            "type": "ValueError",
            "message": "",
            "traceback": "",
        }
        path.write_text(json.dumps(failure))
    assert true_code(code, lines, tmp_path) == expected


def test_a_task_that_died_without_a_word_is_suspected_when_the_others_only_lost_it(tmp_path: Path) -> None:
    """srun heard of the survivor first, whose record says that its peer has gone."""
    ends = {0: 1, 1: -9, 2: -15}
    (tmp_path / "errors").mkdir()

    def record(message: str) -> None:
        failure = {"rank": 0, "host": "n1", "time_s": 1.0, "type": "RuntimeError", "message": message}
        text = json.dumps(failure | {"traceback": ""})
        (tmp_path / "errors" / "rank_0.json").write_text(text)

    record("Connection closed by peer")
    assert suspects(tmp_path, ends) == {0: 1, 1: -9}, "SIGTERM is srun's own doing"
    record("shape mismatch")
    assert suspects(tmp_path, ends) == {0: 1}


def test_only_a_cancelled_job_is_called_cancelled() -> None:
    assert why_cancelled(KILLED_BY_SRUN) is None
    line = "slurmstepd-n1: error: *** JOB 26 ON n1 CANCELLED AT 2026-12-01T09:46:51 DUE TO TIME LIMIT ***"
    assert why_cancelled([line]) == "JOB 26 ON n1 CANCELLED AT 2026-12-01T09:46:51 DUE TO TIME LIMIT"


def test_in_an_allocation_the_step_is_run_and_its_failure_explained_once(
    slurm: FakeSlurm, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """srun is a script here that fails as a run does: a record of rank 1, lines of srun's, its own code."""
    folder = tmp_path / "a run"
    record = {"rank": 1, "host": "n1", "time_s": 1.0, "type": "ValueError", "message": "boom"}
    record["traceback"] = "Traceback\nValueError: boom"
    lines = "\n".join(KILLED_BY_SRUN)
    (slurm.folder / "srun").write_text(
        f"#!/bin/bash\nmkdir -p '{folder}/errors'\ntouch '{folder}/config.yaml'\n"
        f"cat > '{folder}/errors/rank_1.json' <<'END'\n{json.dumps(record)}\nEND\n"
        f'printf "%s\\n" "$@" MLM_FAILURES_ARE_READ=$MLM_FAILURES_ARE_READ > {slurm.folder}/srun.called\n'
        f"echo out; echo '{lines}' >&2; exit 143\n"
    )
    (slurm.folder / "srun").chmod(0o755)
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_CPUS_PER_NODE": "16(x2)"}
    assert submit(slurm, **inside) == 1
    said = capfd.readouterr()
    assert said.out == "out\n"
    assert said.err.count("ValueError: boom") == 1
    assert re.search(r"rank 1 on n1 failed .* and ended the run", said.err)
    assert all(line in said.err for line in KILLED_BY_SRUN)
    words = slurm.called("srun")
    assert {"--nodes=2", "--ntasks=8", "--cpus-per-task=3", "--disable-status", "--input=none"} < set(words)
    assert "launch.mode=join" in words
    assert words[-1] == "MLM_FAILURES_ARE_READ=1", "or every task would print its own"
    assert f"run_dir={folder}" in words
    assert os.path.isabs(words[words.index("-m") - 1]), "the Python that runs this"

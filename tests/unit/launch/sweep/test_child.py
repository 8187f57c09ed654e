"""What a run's end means for the sweep: status and first cause, from its code, error files and last words."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from mlm.errors import Problem
from mlm.launch.refusal import format_problems
from mlm.launch.sweep.child import Ended, verdict


def fail(run_dir: Path, rank: int, kind: str, message: str, time_s: float) -> None:
    (run_dir / "errors").mkdir(exist_ok=True)
    failure = {"rank": rank, "host": "h", "time_s": time_s, "type": kind, "message": message, "traceback": ""}
    (run_dir / "errors" / f"rank_{rank}.json").write_text(json.dumps(failure))


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (-signal.SIGKILL, "unfinished", "killed by SIGKILL"),
        (130, "unfinished", "stopped by SIGINT"),
        (143, "unfinished", "stopped by SIGTERM"),
        (75, "unfinished", "stopped in order, and saved"),
        (1, "failed", "exit code 1"),
        (2, "refused", "was refused before it started"),
        (0, "unfinished", "ended without an error, but its directory holds no summary of this configuration"),
    ],
)
def test_an_exit_code_says_what_became_of_a_run(tmp_path, code, status, message):
    assert verdict(Ended(code, ()), tmp_path, finished=False) == (status, message)


def test_a_run_is_finished_only_with_its_summary(tmp_path):
    assert verdict(Ended(0, ()), tmp_path, finished=True) == ("finished", None)
    assert verdict(Ended(1, ()), tmp_path, finished=True)[0] == "failed"


def test_the_first_cause_is_the_earliest_failure_that_no_other_explains(tmp_path):
    fail(tmp_path, 0, "RuntimeError", "Connection closed by peer [10.0.0.1]", 1.0)
    fail(tmp_path, 1, "ValueError", "boom\nand more", 2.0)
    fail(tmp_path, 2, "ValueError", "later", 3.0)
    assert verdict(Ended(1, ("mlm-train: other",)), tmp_path, finished=False) == (
        "failed",
        "rank 1: ValueError: boom",
    )


def test_a_loss_that_is_no_number_by_its_own_arithmetic_is_divergence_and_no_other_failure(tmp_path):
    fail(tmp_path, 0, "DivergedError", "step 4: loss=nan", 1.0)
    assert verdict(Ended(1, ()), tmp_path, finished=False) == ("diverged", "step 4: loss=nan")
    fail(tmp_path, 0, "TrainError", "step 4: loss=nan", 1.0)
    assert verdict(Ended(1, ()), tmp_path, finished=False)[0] == "failed"


def test_a_failure_without_a_message_is_named_by_its_type(tmp_path):
    fail(tmp_path, 0, "MemoryError", "", 1.0)
    assert verdict(Ended(1, ()), tmp_path, finished=False)[1] == "rank 0: MemoryError"


def test_without_error_files_the_launcher_s_last_word_is_the_cause(tmp_path):
    words = (
        "warming up",
        "mlm-train: rank 1 was killed by SIGKILL and left no traceback",
        "mlm-train: warning: x",
    )
    ended = verdict(Ended(1, words), tmp_path, finished=False)
    assert ended == ("failed", "rank 1 was killed by SIGKILL and left no traceback")


@pytest.mark.parametrize("width", [60, 300])
def test_a_refusal_s_first_problem_is_the_cause_however_wide_its_table_is(tmp_path, width):
    problems = [Problem("tp=8", "needs 8 devices", "use tp=1"), Problem("seed=x", "is no number", "use 1")]
    words = ("mlm-train: warning: z", *format_problems("mlm-train", problems, width).splitlines())
    status, message = verdict(Ended(2, words), tmp_path, finished=False)
    assert status == "refused"
    assert message is not None
    assert message.replace("-> ", "") == "tp=8 needs 8 devices use tp=1"

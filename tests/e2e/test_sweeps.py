"""`mlm-train -m` as a user types it: failures are told and skipped, the same command does what is missing."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlm.config.store import load_config
from tests.e2e.launching import MLM_TRAIN, TINY, Launched, Launches, wait_until_gone

STUDY = """\
# Four points of which one boots, one fails, one is killed and one is too large
title: Four points
repeats: 2
steps: 4
warmup_steps: 1
baseline: {seed: 1}
points:
  - {seed: 1}
  - {seed: 2}
  - {seed: 3}
  - {model: gpt2_8b, model.hidden_size: 98304}
fixed:
  model: gpt2_tiny
  tp: 2
  launch.device: cpu
  launch.threads: 1
  train.global_batch_size: 4
  train.micro_batch_size: 4
  train.log_interval: 1
  train.final_eval: false
  train.save: false
  train.sample_tokens: 0
"""

LARGE = "model=gpt2_8b,hidden_size=98304"
"""Eight trillion parameters, which no machine holds in two processes."""


@pytest.fixture
def launches(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path, tmp_path_factory.getbasetemp() / "cache")


def recorded(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Label -> directory and status of each repeat, as study.json has them."""
    content = json.loads((folder / "study.json").read_text())
    return {p["label"]: [(run["dir"], run["status"]) for run in p["runs"]] for p in content["points"]}


def messages(folder: Path, label: str) -> list[str | None]:
    content: dict[str, Any] = json.loads((folder / "study.json").read_text())
    return [run["message"] for p in content["points"] if p["label"] == label for run in p["runs"]]


def its_run(launched: Launched) -> psutil.Process:
    """The process of the run that is going on."""
    (child,) = psutil.Process(launched.process.pid).children()
    return child


@pytest.mark.long
def test_a_study_tells_and_skips_what_fails_and_the_same_command_does_the_rest(launches: Launches) -> None:
    (launches.folder / "mine" / "study").mkdir(parents=True)
    (launches.folder / "mine" / "study" / "four.yaml").write_text(STUDY)
    command = [*MLM_TRAIN, "--config-dir", "mine", "-m", "study=four"]
    folder = launches.folder / "runs" / "four"

    broken = {"FAULT_OF_RANK_1": "boom@seed=2", "FAULT_OF_RANK_0": "hang@seed=3"}
    first = launches.start(command, broken)
    launches.wait_for_marks(1, timeout_s=150)
    assert recorded(folder)["seed=3"][0] == ("seed=3/r1", "unfinished"), "what runs is not finished yet"
    its_run(first).kill()
    assert first.finish(150) == 1
    assert recorded(folder) == {
        "seed=1": [("seed=1/r1", "finished"), ("seed=1/r2", "finished")],
        "seed=2": [("seed=2/r1", "failed"), ("seed=2/r2", "pending")],
        "seed=3": [("seed=3/r1", "unfinished"), ("seed=3/r2", "pending")],
        LARGE: [(f"{LARGE}/r1", "refused"), (f"{LARGE}/r2", "refused")],
    }
    assert messages(folder, "seed=1") == [None, None]
    assert messages(folder, "seed=2") == ["rank 1: ValueError: boom", "not tried, since seed=2/r1 is failed"]
    assert messages(folder, "seed=3")[0] == "killed by SIGKILL"
    assert "needs" in str(messages(folder, LARGE)[0])
    lines = first.err.splitlines()
    assert "mlm-train: seed=2/r1 is failed: rank 1: ValueError: boom; the other points run" in lines
    assert "mlm-train: seed=3/r1 is unfinished: killed by SIGKILL; the other points run" in lines
    assert any(line.startswith(f"mlm-train: {LARGE} is refused here") for line in lines)
    assert "mlm-report runs/four" in first.out
    table = first.out[first.out.index("Four points; medians after the warm-up, efficiency against seed=1") :]
    assert "2 finished" in table
    assert "1 failed, 1 pending" in table
    assert "100.0 %" in table

    before = {path: path.stat().st_mtime_ns for path in folder.glob("seed=1/*/*")}
    second = launches.run(command, timeout_s=150)
    assert second.code == 1, "the point that is too large is still missing"
    assert recorded(folder) == {
        "seed=1": [("seed=1/r1", "finished"), ("seed=1/r2", "finished")],
        "seed=2": [("seed=2/r1-2", "finished"), ("seed=2/r2", "finished")],
        "seed=3": [("seed=3/r1-2", "finished"), ("seed=3/r2", "finished")],
        LARGE: [(f"{LARGE}/r1", "refused"), (f"{LARGE}/r2", "refused")],
    }
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "2 of 8 runs are finished already, not run again" in second.err
    assert (folder / "seed=2" / "r1" / "errors").is_dir(), "what failed is kept"


def test_a_plain_sweep_runs_every_combination_once(launches: Launches) -> None:
    base = [word for word in TINY if word != "tp=2"]
    command = [*MLM_TRAIN, "-m", *base, "tp=1,2", "seed=1,2", "sweep_dir=mine"]
    done = launches.run(command, timeout_s=150)
    assert done.code == 0, done.out + done.err
    folder = launches.folder / "mine"
    assert recorded(folder) == {
        f"tp={tp},seed={seed}": [(f"tp={tp},seed={seed}/r1", "finished")] for tp in (1, 2) for seed in (1, 2)
    }
    ran = {(c.tp, c.seed) for c in (load_config(path) for path in folder.glob("*/r1/config.yaml"))}
    assert ran == {(1, 1), (1, 2), (2, 1), (2, 2)}

    again = launches.run(command, timeout_s=30)
    assert again.code == 0, again.out + again.err
    assert "4 of 4 runs are finished already, not run again" in again.err
    assert "run 1 of" not in again.err

    (point, *_) = json.loads((folder / "study.json").read_text())["points"]
    words = point["runs"][0]["command"]
    assert words[0] == "mlm-train"
    alone = launches.run([*MLM_TRAIN, *words[1:-1], "run_dir=alone"], timeout_s=60)
    assert alone.code == 0, alone.err
    losses = [
        [json.loads(line)["loss"] for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in (launches.folder / "alone", folder / point["runs"][0]["dir"])
    ]
    assert losses[0] == losses[1], "the recorded command repeats the run"


AT_ONCE = ("seed=1,2", "sweep_dir=mine", "launch.save_grace_s=1")
"""Two runs whose workers, once told to stop, have a second to save."""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_ends_the_run_that_is_going_on_and_the_sweep(
    launches: Launches, number: signal.Signals, code: int
) -> None:
    launched = launches.start([*MLM_TRAIN, "-m", *TINY, *AT_ONCE], {"FAULT_OF_RANK_0": "hang"})
    launches.wait_for_marks(1)
    below = launched.descendants()
    assert len(below) >= 3, "a launcher and two workers"
    launched.signal(number)
    assert launched.finish(60) == code
    assert not wait_until_gone(below, 5)
    assert recorded(launches.folder / "mine") == {
        "seed=1": [("seed=1/r1", "unfinished")],
        "seed=2": [("seed=2/r1", "pending")],
    }
    assert messages(launches.folder / "mine", "seed=1") == [f"stopped by {number.name}"]
    assert f"stopped by {number.name}; the same command goes on from here" in launched.err
    assert not (launches.folder / "mine" / "seed=2").exists()


def test_ctrl_c_in_a_terminal_reaches_the_run_once(launches: Launches) -> None:
    primary, secondary = pty.openpty()
    process = subprocess.Popen(
        [*MLM_TRAIN, "-m", *TINY, *AT_ONCE],
        cwd=launches.folder,
        env=launches.environment | {"FAULT_OF_RANK_0": "hang"},
        stdin=secondary,
        stdout=subprocess.DEVNULL,
        stderr=secondary,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(secondary)
    launches.wait_for_marks(1)
    (run,) = psutil.Process(process.pid).children()
    assert os.getpgid(process.pid) == os.tcgetpgrp(primary), "the terminal signals the sweep"
    assert os.getpgid(run.pid) != os.tcgetpgrp(primary), "and only the sweep signals the run"
    os.write(primary, b"\x03")
    assert process.wait(60) == 130
    time.sleep(0.2)
    said = os.read(primary, 1 << 16).decode()
    os.close(primary)
    assert said.count("mlm-train: stopped by SIGINT") == 2, "once by the run, once by the sweep"
    assert recorded(launches.folder / "mine")["seed=1"] == [("seed=1/r1", "unfinished")]


def _own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_second_sweep_in_the_same_folder_is_refused(launches: Launches) -> None:
    command = [*MLM_TRAIN, "-m", *TINY, *AT_ONCE]
    first = launches.start(command, {"FAULT_OF_RANK_0": "hang"})
    launches.wait_for_marks(1)
    second = launches.run(command)
    assert second.code == 2
    assert "is being written by another mlm-train -m" in second.err
    first.signal(signal.SIGTERM)
    assert first.finish() == 143


DIVERGING = """\
# Two rates, one of which no training survives
compare: loss
panels: optim.lr
steps: 8
points:
  - {optim.lr: 1.0e-3}
  - {optim.lr: 1.0e+30}
fixed:
  model: gpt2_tiny
  dp: 1
  launch.device: cpu
  launch.threads: 1
  train.global_batch_size: 4
  train.micro_batch_size: 4
  train.max_bad_steps: 2
  train.final_eval_samples: 8
  train.save: false
  train.sample_tokens: 0
"""


def test_a_run_that_diverges_is_a_result_where_losses_are_compared(launches: Launches) -> None:
    (launches.folder / "mine" / "study").mkdir(parents=True)
    (launches.folder / "mine" / "study" / "rates.yaml").write_text(DIVERGING)
    command = [*MLM_TRAIN, "--config-dir", "mine", "-m", "study=rates"]
    first = launches.run(command)
    assert first.code == 0, first.err
    assert "lr=1e+30/r1 is diverged, which this study asks for: step 2: loss=nan" in first.err
    states = {"lr=0.001": [("lr=0.001/r1", "finished")], "lr=1e+30": [("lr=1e+30/r1", "diverged")]}
    assert recorded(launches.folder / "runs" / "rates") == states
    assert "diverged" in first.out

    again = launches.run(command)
    assert again.code == 0
    assert "1 of 2 runs is finished already" in again.err
    assert "1 of 2 runs is diverged already" in again.err
    assert recorded(launches.folder / "runs" / "rates") == states

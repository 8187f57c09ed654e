"""Runs that are asked to stop: all ranks save after the same step, and the run goes on undisturbed."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.launching import MLM_TRAIN, TINY, TORCHRUN, Launched, Launches, wait_until_gone
from tests.e2e.test_launch_joined import task

ENDLESS = [*(word for word in TINY if not word.startswith("train.steps")), "train.steps=1000000"]
LEFT_S = 20.0


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def launches(tmp_path: Path, cache: Path) -> Launches:
    return Launches(tmp_path, cache)


def records(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def wait_for_step(run: Path, step: int, *jobs: Launched) -> None:
    deadline = time.monotonic() + 60
    while not any(record["step"] >= step for record in records(run)):
        assert all(job.process.poll() is None for job in jobs), [job.finish() or job.err for job in jobs]
        assert time.monotonic() < deadline, f"no step {step}"
        time.sleep(0.02)


def test_one_signal_saves_and_the_same_command_goes_on_to_the_same_losses(launches: Launches) -> None:
    run, last = launches.folder / "stopped", 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        again = ["resume=auto"] if last else []
        job = launches.start([*MLM_TRAIN, *ENDLESS, f"run_dir={run}", *again])
        wait_for_step(run, last + 3, job)
        job.signal(number)
        assert job.finish(60) == 75, job.err
        last = records(run)[-1]["step"]
        assert f"mlm-train: stopped by {number.name} after step {last}, which is saved in " in job.err
        assert "Traceback" not in job.err
        assert (run / "checkpoints" / "latest").read_text() == f"step_{last}\n"
        hint = next(line for line in job.err.splitlines() if "go on with: " in line)
        assert hint.endswith(f"run_dir={run} resume=auto")

    steps = last + 3
    end = [f"train.steps={steps}", "optim.decay_steps=1000000"]
    settings = [word for word in ENDLESS if not word.startswith("train.steps")]
    ended = launches.run([*MLM_TRAIN, *settings, *end, f"run_dir={run}", "resume=auto"])
    assert ended.code == 0, ended.err
    calm = launches.folder / "calm"
    unbroken = launches.run([*MLM_TRAIN, *settings, *end, f"run_dir={calm}"])
    assert unbroken.code == 0, unbroken.err
    assert [(r["step"], r["loss"]) for r in records(run)] == [(r["step"], r["loss"]) for r in records(calm)]
    assert not (run / "stopped.json").exists(), "the run is no longer stopped"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_all_at_once(launches: Launches, number: signal.Signals, code: int) -> None:
    faults = {f"FAULT_OF_RANK_{rank}": "deaf_hang" for rank in (0, 1)}
    job = launches.start([*MLM_TRAIN, *ENDLESS], faults)
    launches.wait_for_marks(2)
    workers = job.descendants()
    job.signal(number)
    time.sleep(0.5)
    assert job.process.poll() is None, "the first one leaves time to save"
    job.signal(number)
    sent = time.monotonic()
    assert wait_until_gone([*workers, psutil.Process(job.process.pid)], 8) == []
    assert job.finish(10) == code, job.err
    assert time.monotonic() - sent < 8
    assert f"stopped by {number.name}; what was written" in job.err


def test_the_run_ends_within_its_hours_and_is_resumable(launches: Launches) -> None:
    run, seconds = launches.folder / "limited", 35
    job = launches.run([*MLM_TRAIN, *ENDLESS, f"run_dir={run}", f"train.max_hours={seconds / 3600}"])
    assert job.code == 75, job.err
    assert job.seconds < seconds
    assert len(records(run)) > 10, "and uses them"
    assert f"stopped by train.max_hours={seconds / 3600:g} after step" in job.err
    stopped = json.loads((run / "stopped.json").read_text())
    assert Path(stopped["checkpoint"]).name == f"step_{records(run)[-1]['step']}" == f"step_{stopped['step']}"


def test_a_signal_to_one_task_of_srun_stops_all_with_75(launches: Launches) -> None:
    run = launches.folder / "tasks"
    jobs = [launches.start([*MLM_TRAIN, *ENDLESS, f"run_dir={run}"], task(rank)) for rank in (0, 1)]
    wait_for_step(run, 3, *jobs)
    jobs[1].signal(signal.SIGTERM)
    assert [job.finish(60) for job in jobs] == [75, 75], jobs[0].err + jobs[1].err
    assert (run / "checkpoints" / "latest").read_text() == f"step_{records(run)[-1]['step']}\n"


def test_torchrun_passes_the_signal_on_and_the_workers_save(launches: Launches) -> None:
    run = launches.folder / "torchrun"
    words = ["--nproc-per-node=2", "-m", "mlm.cli.train", *ENDLESS, f"run_dir={run}"]
    job = launches.start([*TORCHRUN, *words])
    wait_for_step(run, 3, job)
    job.signal(signal.SIGTERM)
    assert job.finish(60) == 1, "torchrun's own code for everything"
    assert (run / "checkpoints" / "latest").read_text() == f"step_{records(run)[-1]['step']}\n"
    assert json.loads((run / "stopped.json").read_text())["reason"] == "SIGTERM"


def test_a_worker_that_cannot_save_is_reported_and_the_run_is_not_called_saved(launches: Launches) -> None:
    run = launches.folder / "full"
    job = launches.start([*MLM_TRAIN, *ENDLESS, f"run_dir={run}"])
    wait_for_step(run, 2, job)
    (run / "checkpoints").write_text("in the way")
    job.signal(signal.SIGTERM)
    assert job.finish(60) == 1, job.err
    assert "SIGTERM: the run could not be saved: " in job.err
    assert not (run / "stopped.json").exists()

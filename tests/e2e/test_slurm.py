"""launch=slurm on a real Slurm: two tasks on one node, as a step and as a job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from mlm.launch.slurm.queue import is_active
from tests.e2e.launching import MLM_EVAL, MLM_TRAIN, TINY, Launched, Launches, wait_until_gone

STEP = ["salloc", "--quiet", "--nodes=1", "--ntasks=2", "--time=5"]
ON_SLURM = [*MLM_TRAIN, *TINY, "launch=slurm", "launch.device=cpu", "launch.threads=1"]
JOB = [*ON_SLURM, "dp=1", "launch.devices_per_node=2", "launch.time_limit=5", "launch.wait=true"]


def answers(*command: str) -> bool:
    """Whether a command of Slurm's is there and succeeds soon."""
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    if not answers("sinfo", "--noheader"):
        pytest.skip("needs a Slurm cluster: sinfo does not answer")
    folder = tmp_path_factory.mktemp("slurm")
    if not answers("srun", "--quiet", "--nodes=1", "--ntasks=2", "--time=1", "test", "-d", str(folder)):
        pytest.skip(f"needs a node that takes two tasks and sees {folder} (pytest --basetemp=SHARED)")
    return Launches(folder, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def expected(launches: Launches) -> list[float]:
    """The losses of the same run on this machine, without Slurm."""
    run = launches.folder / "local"
    job = launches.run([*MLM_TRAIN, *TINY, "launch.threads=1", f"run_dir={run}"], timeout_s=300)
    assert job.code == 0, job.err
    return losses(run)


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [record["loss"] for record in records if record["kind"] == "train"]
    assert len(found) == 4
    return found


def active(run: Path) -> bool:
    return is_active((run / "slurm_job_id").read_text().strip(), os.environ)


def mlm_train_below(job: Launched) -> psutil.Process:
    """Our command, which salloc has started."""
    (found,) = [p for p in job.descendants() if MLM_TRAIN[0] in p.cmdline() and "launch=slurm" in p.cmdline()]
    return found


def test_a_step_of_an_allocation_trains_as_this_machine_does(
    launches: Launches, expected: list[float]
) -> None:
    run = launches.folder / "step"
    job = launches.run([*STEP, *ON_SLURM, f"run_dir={run}"], timeout_s=300)
    assert job.code == 0, job.err
    assert losses(run) == expected
    assert "srun --nodes=1 --ntasks=2 --ntasks-per-node=2" in job.err
    about = json.loads((run / "environment.json").read_text())
    assert about["environment"]["SLURM_STEP_NUM_TASKS"] == "2"


def test_tasks_that_srun_started_by_hand_join(launches: Launches, expected: list[float]) -> None:
    run = launches.folder / "joined"
    srun = ["srun", "--quiet", "--nodes=1", "--ntasks=2", "--time=5"]
    job = launches.run([*srun, *MLM_TRAIN, *TINY, "launch.threads=1", f"run_dir={run}"], timeout_s=300)
    assert job.code == 0, job.err
    assert losses(run) == expected


def test_a_submitted_job_trains_as_this_machine_does_and_is_evaluated_by_another(
    launches: Launches, expected: list[float]
) -> None:
    run = launches.folder / "job"
    words = [word for word in JOB if word != "train.save=false"]
    job = launches.run([*words, f"run_dir={run}"], timeout_s=300)
    assert job.code == 0, job.err
    assert losses(run) == expected
    number = (run / "slurm_job_id").read_text().strip()
    assert f"submitted job {number}" in job.err
    assert "finished 4 steps" in (run / f"slurm-{number}.log").read_text()
    assert not active(run)

    passages = launches.folder / "passages.jsonl"
    passages.write_text(json.dumps({"text": "the king said that he would see the king"}) + "\n")
    asked = ["launch=slurm", "launch.device=cpu", "launch.devices_per_node=2", "dp=1", "tp=2"]
    task = [f"checkpoint={run}", "tasks=[lambada]", f"task_paths.lambada={passages}"]
    out = launches.folder / "evaluated"
    waiting = ["launch.time_limit=5", "launch.wait=true", f"out={out}"]
    evaluated = launches.run([*MLM_EVAL, *task, *asked, *waiting], timeout_s=300)
    assert evaluated.code == 0, evaluated.err
    assert (out / "eval.json").is_file()
    assert (out / "job.sbatch").is_file()


@pytest.mark.parametrize("way", ["step", "job"])
def test_a_failing_rank_is_named_with_its_cause_and_the_code_is_1(launches: Launches, way: str) -> None:
    run = launches.folder / f"boom-{way}"
    command = [*STEP, *ON_SLURM] if way == "step" else JOB
    job = launches.run([*command, f"run_dir={run}"], {"FAULT_OF_RANK_1": "boom"}, timeout_s=300)
    assert job.code == 1, job.err
    assert job.err.count("ValueError: boom") == 1, job.err
    assert "rank 1 on" in job.err


def test_a_directory_with_a_run_is_refused_before_any_task_starts(launches: Launches) -> None:
    taken = launches.folder / "taken"
    taken.mkdir()
    (taken / "config.yaml").write_text("")
    for command in ([*STEP, *ON_SLURM], JOB):
        job = launches.run([*command, f"run_dir={taken}"], timeout_s=120)
        assert job.code == 2, job.err
        assert "already holds a run" in job.err
        assert "srun --nodes" not in job.err
    assert [path.name for path in taken.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_and_leaves_no_task(
    launches: Launches, number: signal.Signals, code: int
) -> None:
    run = launches.folder / f"step-{number.name}"
    hang = {"FAULT_OF_RANK_0": "hang", "FAULT_OF_RANK_1": "hang"}
    for mark in launches.marks.iterdir():
        mark.unlink()
    job = launches.start([*STEP, *ON_SLURM, "launch.save_grace_s=3", f"run_dir={run}"], hang)
    launches.wait_for_marks(2, timeout_s=240)
    tasks = [p for p in psutil.process_iter(["cmdline"]) if f"run_dir={run}" in (p.info["cmdline"] or [])]
    mlm_train_below(job).send_signal(number)
    assert job.finish(60) == code, job.err
    assert f"stopped by {number.name}" in job.err
    assert wait_until_gone(tasks, 10) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_step_that_can_save_leaves_a_checkpoint_and_code_75(
    launches: Launches, number: signal.Signals
) -> None:
    run = launches.folder / f"saved-{number.name}"
    endless = [word for word in ON_SLURM if not word.startswith("train.steps")]
    job = launches.start([*STEP, *endless, "train.steps=1000000", f"run_dir={run}"])
    deadline = time.monotonic() + 240
    while not (run / "metrics.jsonl").exists() or '"step": 3' not in (run / "metrics.jsonl").read_text():
        assert job.process.poll() is None, job.finish() or job.err
        assert time.monotonic() < deadline, "no third step"
        time.sleep(0.1)
    mlm_train_below(job).send_signal(number)
    assert job.finish(60) == 75, job.err
    stopped = json.loads((run / "stopped.json").read_text())
    assert stopped["reason"] == number.name
    assert (run / "checkpoints" / "latest").read_text() == f"step_{stopped['step']}\n"


def test_ctrl_c_while_waiting_cancels_the_job(launches: Launches) -> None:
    run = launches.folder / "cancelled"
    job = launches.start([*JOB, f"run_dir={run}"])
    deadline = time.monotonic() + 60
    while not (run / "slurm_job_id").exists():
        assert time.monotonic() < deadline, "nothing was submitted"
        time.sleep(0.1)
    job.signal(signal.SIGINT)
    assert job.finish(120) == 130, job.err
    while active(run):
        assert time.monotonic() < deadline + 60, "the job is still in the queue"
        time.sleep(0.5)

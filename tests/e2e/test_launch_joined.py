"""Three ways to start one run, and what happens where the processes of a step disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.launching import MLM_TRAIN, TINY, TORCHRUN, Launched, Launches

TORCHRUN_TWO = [*TORCHRUN, "--nproc-per-node=2"]
JOINED = ["-m", "mlm.cli.train", *TINY]


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path_factory.mktemp("joined"), tmp_path_factory.mktemp("cache"))


def task(rank: int) -> dict[str, str]:
    """The environment of one of two tasks that srun has started on this machine."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "3",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
    }


def srun(launches: Launches, commands: list[list[str]]) -> list[Launched]:
    """The tasks, one command each, started together as srun would."""
    jobs = [launches.start([*MLM_TRAIN, *words], task(rank)) for rank, words in enumerate(commands)]
    for job in jobs:
        job.finish()
    return jobs


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


def test_mlm_train_torchrun_and_srun_run_the_same_training(launches: Launches) -> None:
    found: dict[str, list[float]] = {}
    for name in ("mlm-train", "torchrun", "srun"):
        before = set(launches.run_dirs())
        if name == "srun":
            jobs = srun(launches, [TINY, TINY])
        else:
            jobs = [launches.run([*MLM_TRAIN, *TINY] if name == "mlm-train" else [*TORCHRUN_TWO, *JOINED])]
        assert [job.code for job in jobs] == [0] * len(jobs), "\n".join(job.err for job in jobs)
        (run,) = set(launches.run_dirs()) - before
        assert not (run / "errors").exists()
        found[name] = losses(run)
    assert len(found["mlm-train"]) == 4
    assert found["torchrun"] == found["mlm-train"]
    assert found["srun"] == found["mlm-train"]

    # A finished run is never overwritten, and its directory says how it was started.
    run = launches.run_dirs()[0]
    before_files = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    refused = launches.run([*MLM_TRAIN, *TINY, f"run_dir={run}"])
    assert refused.code == 2
    assert "already holds a run, which is never overwritten" in refused.err
    assert {path: path.stat().st_mtime_ns for path in run.iterdir()} == before_files
    assert (run / "overrides.txt").read_text().splitlines() == TINY
    about: dict[str, Any] = json.loads((run / "environment.json").read_text())
    assert about["command"] == ["mlm-train", *TINY]
    assert {"python", "torch", "mlm", "numpy", "hydra-core"} <= about["versions"].keys()


@pytest.mark.parametrize(
    ("processes", "words", "said"),
    [
        (3, JOINED, "3 processes from torchrun  are not a multiple of tp*pp=2"),
        (2, [*JOINED, "train.stps=3"], "train.stps=3  is no such key  use train.steps=3"),
    ],
)
def test_under_torchrun_a_problem_is_printed_once_and_ends_all(
    launches: Launches, processes: int, words: list[str], said: str
) -> None:
    before = launches.run_dirs()
    job = launches.run([*TORCHRUN, f"--nproc-per-node={processes}", *words])
    assert job.code != 0
    assert job.err.count(said) == 1, job.err
    assert job.err.count("nothing was started") == 1
    assert "exitcode  : 2" in job.err, "which is what torchrun reports of the first that ended"
    assert launches.run_dirs() == before


def test_tasks_with_different_command_lines_refuse_to_train_together(launches: Launches) -> None:
    before = launches.run_dirs()
    jobs = srun(launches, [TINY, [*TINY, "seed=7"]])
    assert [job.code for job in jobs] == [2, 2]
    said = "".join(job.err for job in jobs)
    assert said.count("seed=7 against 1234") == 1, said
    assert "Traceback" not in said
    assert launches.run_dirs() == before


def test_a_problem_of_one_task_ends_the_other_too(launches: Launches) -> None:
    jobs = srun(launches, [TINY, [*TINY, "tpp=7"]])
    assert [job.code for job in jobs] == [2, 2]
    said = "".join(job.err for job in jobs)
    assert "rank 1 on" in said
    assert said.count("tpp=7") == 1, said


def test_slurm_variables_without_a_step_mean_nothing(launches: Launches) -> None:
    shell = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "WORLD_SIZE": "8"}
    job = launches.run([*MLM_TRAIN, *TINY, "launch=dry_run"], shell)
    assert job.code == 0
    assert "2 = tp 2 x pp 1 x dp 1" in job.out
    refused = launches.run([*MLM_TRAIN, *TINY, "launch=join"], shell)
    assert refused.code == 2
    assert "launch=join" in refused.err

"""Workers that die or hang: named, ended in time, and started again from the newest checkpoint when asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.launching import MLM_TRAIN, TINY, Launches

SIX_STEPS = [*(word for word in TINY if not word.startswith("train.steps")), "train.steps=6"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def launches(tmp_path: Path, cache: Path) -> Launches:
    return Launches(tmp_path, cache)


def losses(run: Path) -> dict[int, float]:
    """Step -> loss; a later attempt's stands."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {record["step"]: record["loss"] for record in lines if record["kind"] == "train"}


def test_a_run_whose_worker_is_killed_again_and_again_ends_with_the_undisturbed_losses(
    launches: Launches,
) -> None:
    calm, run = launches.folder / "calm", launches.folder / "run"
    assert launches.run([*MLM_TRAIN, *SIX_STEPS, f"run_dir={calm}"]).code == 0
    # Each attempt dies in its third step: two get through, and the save of the first of them at least.
    restarts = [*SIX_STEPS, f"run_dir={run}", "launch.max_restarts=9", "checkpoint.interval=1"]
    job = launches.run(
        [*MLM_TRAIN, *restarts, "checkpoint.asynchronous=false"], {"FAULT_OF_RANK_1": "killed"}, timeout_s=180
    )
    assert job.code == 0, job.err
    assert job.err.count("rank 1 was killed by SIGKILL") == 2
    assert f"started again from {run}/checkpoints/step_2 (restart 1 of 9)" in job.err
    assert f"started again from {run}/checkpoints/step_4 (restart 2 of 9)" in job.err
    assert losses(run) == losses(calm)
    assert len(losses(run)) == 6
    assert not (run / "errors").exists(), "a finished run has no errors"


def test_restarts_are_used_up_and_a_user_s_error_uses_none(launches: Launches) -> None:
    allowed, run = [*MLM_TRAIN, *TINY, "launch.max_restarts=1"], launches.folder / "run"
    job = launches.run([*allowed, f"run_dir={run}"], {"FAULT_OF_RANK_0": "boom"}, timeout_s=120)
    assert job.code == 1
    assert job.err.count("ValueError: boom") == 2
    assert "started again from its beginning (restart 1 of 1)" in job.err
    assert "not started again: launch.max_restarts=1 are used up" in job.err
    for errors in (run / "attempts" / "1" / "errors", run / "errors"):
        assert "boom" in (errors / "rank_0.json").read_text(), "each attempt keeps its own"

    job = launches.run(allowed, {"FAULT_OF_RANK_0": "user_error"})
    assert job.code == 1
    assert job.err.count("the loss is a letter") == 1
    assert "not started again: that would end the same way" in job.err


def test_a_rank_that_sleeps_is_warned_of_and_then_named_with_the_line_it_sleeps_in(
    launches: Launches,
) -> None:
    job = launches.run([*MLM_TRAIN, *TINY, "launch.timeout_s=6"], {"FAULT_OF_RANK_1": "hang"})
    assert job.code == 1
    waits = "all-reduce number"
    assert f"warning: {waits}" in job.out, "while there is still time to look"
    report = job.err[job.err.index("mlm-train: rank 0 stopped the run: ") :]
    assert waits in report
    assert "over tp (ranks 0, 1) in step 4 has taken 6 s (launch.timeout_s=6) and waits for rank 1" in report
    assert "at hang (sitecustomize.py:" in report.splitlines()[0]


@pytest.mark.long
def test_a_hang_across_both_axes_is_traced_to_the_rank_that_sleeps(launches: Launches) -> None:
    layout = ["dp=2", "train.global_batch_size=8", "train.micro_batch_size=4", "launch.timeout_s=8"]
    words = [w for w in TINY if not w.startswith(("train.global", "train.micro"))]
    job = launches.run([*MLM_TRAIN, *words, *layout], {"FAULT_OF_RANK_2": "hang"}, timeout_s=120)
    assert job.code == 1
    first = job.err[job.err.index("stopped the run: ") :].splitlines()[0]
    assert "rank 2, for" in first, job.err
    assert "at hang (sitecustomize.py:" in first


def test_two_jobs_on_one_host_do_not_meet(launches: Launches) -> None:
    runs = [launches.folder / name for name in ("one", "two")]
    jobs = [launches.start([*MLM_TRAIN, *TINY, f"run_dir={run}"]) for run in runs]
    assert [job.finish(120) for job in jobs] == [0, 0], "\n".join(job.err for job in jobs)
    assert losses(runs[0]) == losses(runs[1])

"""Whatever ends a run, its cause is named first, its exit code tells, and no process survives it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest

from mlm.failures import read_failures
from tests.e2e.launching import MLM_TRAIN, TINY, Launches, occupied_ports, wait_until_gone

GONE_S = 10.0


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def launches(tmp_path: Path, cache: Path) -> Launches:
    return Launches(tmp_path, cache)


def test_one_raising_rank_is_shown_first_though_the_usual_ports_are_taken(launches: Launches) -> None:
    with occupied_ports(29500, 29400):
        job = launches.run([*MLM_TRAIN, *TINY], {"FAULT_OF_RANK_1": "boom"})
    assert job.code == 1, job.err
    report = job.err[job.err.index("mlm-train: rank") :]
    first, *_ = report.splitlines()
    assert first.startswith("mlm-train: rank 1 on "), report
    assert "ValueError: boom" in report
    assert "in boom" in report, "the line of the code that raised"
    assert job.err.count("Traceback") == 1, "rank 0 lost its peer, which is a line, not a second traceback"
    (run,) = launches.run_dirs()
    assert (run / "errors" / "rank_1.json").exists()
    assert str(run / "errors") in report
    # torch's compiler keeps its cache of the user there, which is no litter of this run.
    left = [path.name for path in launches.scratch.iterdir() if not path.name.startswith("torchinductor_")]
    assert left == [], "temporary files are left"


def test_a_rank_killed_from_outside_is_named_with_its_signal(launches: Launches) -> None:
    job = launches.run([*MLM_TRAIN, *TINY], {"FAULT_OF_RANK_1": "killed"})
    assert job.code == 1
    report = job.err[job.err.index("mlm-train: rank") :]
    assert report.startswith("mlm-train: rank 1 was killed by SIGKILL"), report


@pytest.mark.parametrize(
    ("number", "fault", "code"),
    [
        (signal.SIGINT, "hang", 130),
        (signal.SIGTERM, "hang", 143),
        (signal.SIGTERM, "deaf_hang", 143),
        (signal.SIGKILL, "hang", -9),
    ],
)
def test_workers_that_cannot_save_are_killed_after_the_saving_grace(
    launches: Launches, number: signal.Signals, fault: str, code: int
) -> None:
    faults = {f"FAULT_OF_RANK_{rank}": fault for rank in (0, 1)}
    job = launches.start([*MLM_TRAIN, *TINY, "launch.save_grace_s=2"], faults)
    launches.wait_for_marks(2)
    workers = job.descendants()
    assert len(workers) >= 2
    job.signal(number)
    sent = time.monotonic()
    alive = wait_until_gone([*workers, psutil.Process(job.process.pid)], GONE_S)
    assert job.finish(GONE_S) == code, job.err
    assert alive == [], f"alive {time.monotonic() - sent:.1f} s after {number.name}"
    if number != signal.SIGKILL:
        assert f"stopped by {number.name}; the workers had not ended within launch.save_grace_s=2" in job.err
        assert "Traceback" not in job.err


def test_a_worker_that_ignores_every_signal_is_killed_after_another_ones_failure(launches: Launches) -> None:
    job = launches.run(
        [*MLM_TRAIN, *TINY, "launch.failure_grace_s=3"],
        {"FAULT_OF_RANK_0": "deaf_hang", "FAULT_OF_RANK_1": "boom"},
    )
    ended = time.time()
    (run,) = launches.run_dirs()
    (failure,) = read_failures(run)
    assert 3 <= ended - failure.time_s < 8, "the grace, and a moment for the processes to go"
    assert job.code == 1
    assert "mlm-train: rank 1 on " in job.err
    assert "ValueError: boom" in job.err

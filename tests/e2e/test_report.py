"""mlm-report on runs that mlm-train really made: the numbers of its table are those of metrics.jsonl."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path

import pytest

from tests.e2e.launching import BIN, MLM_TRAIN, TINY, Launches

MLM_REPORT = [str(BIN / "mlm-report")]
STEPS = 16


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    folder = tmp_path_factory.mktemp("report")
    return Launches(folder, folder / "cache")


@pytest.fixture(scope="module")
def runs(launches: Launches) -> dict[int, Path]:
    """One run per tp, the one at tp=2 profiled."""
    base = [word for word in TINY if not word.startswith(("tp=", "train.steps=", "train.log_interval="))]
    base += [f"train.steps={STEPS}", "train.log_interval=2", "launch.threads=1"]
    for tp in (1, 2):
        words = [*base, f"tp={tp}", f"run_dir=tp={tp}", *(["profile=true"] if tp == 2 else [])]
        launched = launches.run([*MLM_TRAIN, *words], timeout_s=200)
        assert launched.code == 0, launched.out + launched.err
    return {tp: launches.folder / f"tp={tp}" for tp in (1, 2)}


def table(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "table.csv").open() as file:
        return {row["point"]: row for row in csv.DictReader(file)}


def window_times(run: Path) -> list[float]:
    """Step times of the windows that begin after step 5, found by walking from one to the next."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = {r["step"]: r for r in lines if r["kind"] == "train" and not r.get("profiled")}
    found, step = [], 1
    while step in timed:
        if step > 5:
            found.append(timed[step]["step_time_s"])
        step += timed[step]["window_steps"]
    return found


def test_two_runs_are_compared_by_their_own_metrics(launches, runs):
    launched = launches.run([*MLM_REPORT, "tp=1", "tp=2", "out=both"], timeout_s=120)
    assert launched.code == 0, launched.err
    assert launched.err == ""
    assert "report in both/index.html" in launched.out
    rows = table(launches.folder / "both")
    medians = {}
    for tp, run in runs.items():
        row, summary = rows[f"tp={tp}"], json.loads((run / "summary.json").read_text())
        times = window_times(run)
        medians[tp] = statistics.median(times)
        # Every second step closes one; at tp=2 the last three of 16 steps are profiled and in none.
        assert row["windows"] == str(len(times)) == {1: "5", 2: "4"}[tp]
        assert float(row["step_time_median_s"]) == pytest.approx(medians[tp], rel=1e-12)
        flops = summary["flops_per_step"]
        assert float(row["pflops"]) == pytest.approx(flops / medians[tp] / 1e15, rel=1e-12)
        assert float(row["model_flops_per_step"]) == flops
    efficiency = medians[1] / (2 * medians[2])
    assert float(rows["tp=2"]["efficiency_by_flops"]) == pytest.approx(efficiency, rel=1e-12)
    page = (launches.folder / "both" / "index.html").read_text()
    assert f"{100 * efficiency:.1f} %" in page
    assert "exposed communication" in page
    assert "Not profiled: tp=1." in page


def test_a_run_that_is_still_going_or_was_cut_off_is_reported_as_far_as_it_came(launches, runs):
    cut = launches.folder / "cut"
    cut.mkdir()
    for name in ("config.yaml", "environment.json"):
        (cut / name).write_bytes((runs[1] / name).read_bytes())
    (cut / "metrics.jsonl").write_bytes((runs[1] / "metrics.jsonl").read_bytes()[:-700])
    launched = launches.run([*MLM_REPORT, "cut"], timeout_s=120)
    assert launched.code == 0, launched.err
    assert "is cut off and left out" in launched.out
    assert f"of {STEPS} was the last one written" in launched.out
    assert (cut / "report" / "index.html").is_file()


def test_nothing_to_read_is_refused_with_the_reason(launches, runs):
    empty = launches.folder / "empty"
    empty.mkdir()
    (empty / "config.yaml").write_bytes((runs[1] / "config.yaml").read_bytes())
    launched = launches.run([*MLM_REPORT, "empty"], timeout_s=60)
    assert launched.code == 2
    assert launched.out == ""
    assert "metrics.jsonl is missing" in launched.err
    assert not (empty / "report").exists()

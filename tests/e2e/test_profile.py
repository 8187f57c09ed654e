"""profile=true by the installed command: the trace that people open, the table, and what stays untouched."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.launching import MLM_TRAIN, TINY, Launches

STEPS = [4, 5, 9]
WORDS = [
    *(word for word in TINY if not word.startswith(("train.steps", "train.log_interval"))),
    "train.steps=12",
    "train.log_interval=100",
    "train.eval_interval=5",
    "train.eval_samples=4",
    "launch.threads=1",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same training with and without the profiler."""
    folder = tmp_path_factory.mktemp("profile")
    launches = Launches(folder, folder / "cache")
    profile = ["profile=true", f"profile_steps=[{','.join(map(str, STEPS))}]"]
    for name, words in (("plain", []), ("profiled", profile)):
        launched = launches.run([*MLM_TRAIN, *WORDS, *words, f"run_dir={name}"], timeout_s=280)
        assert launched.code == 0, launched.out + launched.err
        strangers = [line for line in launched.err.splitlines() if not line.startswith("mlm-train: ")]
        assert not strangers, "on standard error only the launcher speaks in a good run"
        (folder / f"{name}.out").write_text(launched.out)
    return {"plain": folder / "plain", "profiled": folder / "profiled"}


def train_records(run_dir: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [record for record in lines if record["kind"] == "train"]


def events(run_dir: Path, rank: int) -> list[dict[str, Any]]:
    with gzip.open(run_dir / "profile" / f"rank{rank}.json.gz", "rt") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def test_the_profiler_changes_no_loss_and_leaves_only_its_own_files(runs):
    plain, profiled = (train_records(runs[name]) for name in ("plain", "profiled"))
    for name in ("loss", "grad_norm", "lr", "consumed_tokens"):
        assert [record[name] for record in plain] == [record[name] for record in profiled], name
    assert not (runs["plain"] / "profile").exists()
    left = sorted(path.name for path in (runs["profiled"] / "profile").iterdir())
    assert left == ["rank0.json.gz", "rank1.json.gz", "time.json"]


def test_recorded_steps_are_in_no_timing_window_and_say_so(runs):
    records = train_records(runs["profiled"])
    assert [record["step"] for record in records if record.get("profiled")] == STEPS
    # Windows end before and after what is recorded, and at the validations after steps 5 and 10.
    windows = [record["window_steps"] for record in records]
    assert windows == [1, 2, 2, None, None, 3, 3, 3, None, 1, 2, 2]
    for record in records:
        rates = [record[name] for name in ("step_time_s", "tokens_per_s", "throughput_pflops")]
        assert [rate is None for rate in rates] == [record["step"] in STEPS] * 3
    for first, last in ((2, 3), (6, 8), (11, 12)):
        assert len({record["step_time_s"] for record in records[first - 1 : last]}) == 1
    plain = [record["window_steps"] for record in train_records(runs["plain"])]
    assert plain == [1, 4, 4, 4, 4, 5, 5, 5, 5, 5, 2, 2]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_reader_of_the_trace_finds_each_step_and_its_parts(runs, rank):
    ranges = [event for event in events(runs["profiled"], rank) if event["cat"] == "user_annotation"]
    steps = sorted((event for event in ranges if event["name"].startswith("step ")), key=lambda e: e["ts"])
    assert [event["name"] for event in steps] == [f"step {step}" for step in STEPS]
    for step in steps:
        inside = [
            event["name"]
            for event in sorted(ranges, key=lambda e: e["ts"])
            if event["tid"] == step["tid"]
            and step["ts"] < event["ts"]
            and event["ts"] + event["dur"] <= step["ts"] + step["dur"]
        ]
        assert inside == ["data", "forward", "backward", "optimizer"]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_table_of_times_is_what_sampling_the_trace_every_microsecond_finds(runs, rank):
    table = json.loads((runs["profiled"] / "profile" / "time.json").read_text())
    assert table["steps"] == STEPS
    assert [row["rank"] for row in table["ranks"]] == [0, 1]
    row = table["ranks"][rank]

    found = events(runs["profiled"], rank)
    steps = [event for event in found if event["name"].startswith("step ")]
    thread = steps[0]["tid"]
    start = min(event["ts"] for event in steps)
    length = int(max(event["ts"] + event["dur"] for event in steps) - start) + 1_000_000

    def when(chosen: list[dict[str, Any]]) -> np.ndarray:
        busy = np.zeros(length, dtype=bool)
        for event in chosen:
            first, last = event["ts"] - start, event["ts"] + event["dur"] - start
            busy[max(0, round(first)) : max(0, round(last))] = True
        return busy

    mine = [event for event in found if event["tid"] == thread]
    stepping = when([event for event in mine if event["name"].startswith(("step ", "wait for the device"))])
    # Between two neighbouring steps the loop turns; between two recordings nothing is known.
    recorded = [
        when([e for e in steps if e["name"] in names]) for names in (("step 4", "step 5"), ("step 9",))
    ]
    for part in recorded:
        inside = np.flatnonzero(part)
        stepping[inside[0] : inside[-1]] = True
    data = when([event for event in mine if event["name"] == "data"]) & stepping
    operators = when([event for event in mine if event["name"].startswith("aten::")]) & stepping & ~data
    transfers = when([e for e in found if e["name"].startswith(("gloo:", "c10d::"))]) & stepping
    optimizer = when([event for event in mine if event["name"] == "optimizer"]) & operators

    def seconds(moments: np.ndarray) -> float:
        return float(moments.sum()) / 1e6 / len(STEPS)

    # Rounding errs by up to a microsecond at each end of some thousand operators.
    close = {"abs": 5e-4, "rel": 0.02}
    assert row["compute_s"] == pytest.approx(seconds(operators & ~optimizer), **close)
    assert row["optimizer_s"] == pytest.approx(seconds(optimizer), **close)
    assert row["exposed_communication_s"] == pytest.approx(seconds(transfers & ~operators), **close)
    assert row["data_s"] == pytest.approx(seconds(data & ~transfers), **close)
    assert row["step_s"] == pytest.approx(seconds(stepping), **close)
    kinds = ("compute_s", "exposed_communication_s", "data_s", "optimizer_s", "other_s")
    assert sum(row[kind] for kind in kinds) == pytest.approx(row["step_s"], rel=1e-9)
    assert row["exposed_communication_s"] > 0
    assert row["compute_s"] > 0


def test_the_summary_says_what_utilisation_rests_on(runs):
    summary = json.loads((runs["profiled"] / "summary.json").read_text())
    assert summary["world_size"] == 2
    assert summary["hardware_flops_per_step"] == summary["flops_per_step"], "nothing is recomputed yet"
    assert summary["median_speed"]["steps"] in (1, 2, 3)


def test_the_console_shows_where_the_time_went(runs):
    out = runs["profiled"].with_suffix(".out").read_text()
    assert "where the time of steps 4, 5, 9 went" in out
    assert "communication while nothing computes" in out
    assert "step  9/12" in out
    assert "profiled, not timed" in out

"""Every figure of table.csv, recomputed from metrics.jsonl by arithmetic that shares nothing with ours."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from mlm.report.gather import gather
from mlm.report.rows import rows
from mlm.report.tables import points_csv
from tests.unit.report.written import write_run, write_study

SHAPES = {1: (2, 64, 4), 2: (3, 96, 6)}
"""tp -> (layers, hidden, heads)."""
VOCAB, SEQ, BATCH = 264, 64, 4


def shape(tp: int) -> list[str]:
    layers, hidden, heads = SHAPES[tp]
    sizes = [f"model.num_layers={layers}", f"model.hidden_size={hidden}", f"model.num_heads={heads}"]
    return [*sizes, f"tp={tp}", "train.micro_batch_size=2"]


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "weak"
    rng = np.random.default_rng(7)
    points = []
    for tp, mean in ((1, 0.5), (2, 0.8)):
        for repeat in (1, 2, 3):
            times = mean * rng.uniform(0.9, 1.1, size=6)
            spans = [(1, 9.0), (4, 3.0), *((3 + n, float(t)) for n, t in enumerate(times))]
            write_run(folder / f"tp={tp}" / f"r{repeat}", shape(tp), windows=spans, profiled_steps=3)
        runs = [(f"tp={tp}/r{n}", "finished", None) for n in (1, 2, 3)]
        points.append({"label": f"tp={tp}", "published_key": tp, "runs": runs, "overrides": shape(tp)})
    return write_study(
        folder, points, scaling="weak", baseline="tp=1", published="figure5_tp", warmup_steps=5, repeats=3
    )


def window_times(run: Path, warmup: int) -> list[float]:
    """Times of windows after the warm-up, by walking over the lines."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["kind"] == "train"]
    found, at = [], 0
    while at < len(lines):
        if lines[at]["step"] > warmup and "profiled" not in lines[at]:
            found.append(lines[at]["step_time_s"])
        at += lines[at]["window_steps"]
    return found


def flops(tp: int) -> float:
    layers, h, _ = SHAPES[tp]
    return 72 * BATCH * SEQ * layers * h**2 * (1 + SEQ / (6 * h) + VOCAB / (12 * layers * h))


def parameters(tp: int) -> int:
    layers, h, _ = SHAPES[tp]
    return layers * (12 * h**2 + 13 * h) + VOCAB * h + SEQ * h + 2 * h


def table(*folders: Path, **options) -> list[dict[str, str]]:
    settings = {"baseline": None, "warmup_steps": None} | options
    groups = gather(folders, **settings)
    return list(csv.DictReader(io.StringIO(points_csv([(group, rows(group)) for group in groups]))))


def test_times_throughput_and_efficiency_of_a_study(study):
    lines = {row["point"]: row for row in table(study)}
    pooled = {
        tp: np.array([t for r in (1, 2, 3) for t in window_times(study / f"tp={tp}" / f"r{r}", 5)])
        for tp in SHAPES
    }
    t0 = np.median(pooled[1])
    for tp, times in pooled.items():
        row = {name: float(v) if v.replace(".", "").isdigit() else v for name, v in lines[f"tp={tp}"].items()}
        n, t = tp, np.median(times)
        assert row["windows"] == len(times) == 18
        assert row["runs"] == 3
        assert row["step_time_median_s"] == pytest.approx(t, rel=1e-12)
        q1, q3 = np.percentile(times, [25, 75])
        assert (row["step_time_q1_s"], row["step_time_q3_s"]) == pytest.approx((q1, q3), rel=1e-12)
        assert row["step_time_spread"] == pytest.approx((q3 - q1) / t, rel=1e-9)
        assert row["parameters"] == parameters(tp)
        assert row["model_flops_per_step"] == pytest.approx(flops(tp), rel=1e-12)
        assert row["tokens_per_s"] == pytest.approx(BATCH * SEQ / t, rel=1e-12)
        assert float(lines[f"tp={tp}"]["pflops"]) == pytest.approx(flops(tp) / t / 1e15, rel=1e-12)
        per_device = float(lines[f"tp={tp}"]["tflops_per_device"])
        assert per_device == pytest.approx(flops(tp) / t / n / 1e12, rel=1e-12)
        by_flops = (flops(tp) / (t * n)) / (flops(1) / t0)
        assert row["efficiency_by_flops"] == pytest.approx(by_flops, rel=1e-12)
        assert row["efficiency_by_flops_low"] == pytest.approx(by_flops * t / q3, rel=1e-12)
        assert row["efficiency_by_flops_high"] == pytest.approx(by_flops * t / q1, rel=1e-12)
        by_parameters = (parameters(tp) * BATCH / t / n) / (parameters(1) * BATCH / t0)
        assert row["efficiency_by_parameters"] == pytest.approx(by_parameters, rel=1e-12)
        assert row["speed_up"] == pytest.approx(t0 / t, rel=1e-12)
        assert row["efficiency_of_speed_up"] == pytest.approx(t0 / t / n, rel=1e-12)
        assert row["mfu"] == row["hfu"] == ""
        assert row["paper_efficiency"] == {1: 1.0, 2: 0.95}[tp]


def test_fastest_and_slowest_run_are_means_over_steps_not_over_windows(study):
    points = {row["point"]: row for row in table(study)}
    means = []
    for repeat in (1, 2, 3):
        lines = (study / "tp=2" / f"r{repeat}" / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        counted = [s["step_time_s"] for s in steps if s["step"] > 5 and "profiled" not in s]
        means.append(np.mean(counted))
    assert float(points["tp=2"]["step_time_fastest_run_s"]) == pytest.approx(min(means), rel=1e-12)
    assert float(points["tp=2"]["step_time_slowest_run_s"]) == pytest.approx(max(means), rel=1e-12)


def test_mfu_and_hfu_are_those_of_the_median_step_time(tmp_path):
    # The run knew a peak of F / (2 s * 0.3): at the median of 4 s its MFU is half of 0.3.
    run = write_run(tmp_path / "a", windows=[(6, 2.0), (6, 4.0), (6, 5.0)], share=0.3)
    (row,) = table(run, warmup_steps=0)
    assert float(row["step_time_median_s"]) == 4.0
    assert float(row["mfu"]) == pytest.approx(0.15, rel=1e-12)
    assert float(row["hfu"]) == pytest.approx(0.30, rel=1e-12)


def test_where_the_time_goes_is_the_mean_over_ranks_and_repeats(tmp_path):
    names = ("compute_s", "exposed_communication_s", "data_s", "optimizer_s", "other_s")
    for repeat, seconds in ((1, (4.0, 2.0, 1.0, 1.0, 0.0)), (2, (2.0, 4.0, 1.0, 0.0, 1.0))):
        run = tmp_path / "s" / f"r{repeat}"
        write_run(run, windows=[(6, 1.0), (6, 1.0)], profile=dict(zip(names, seconds, strict=True)))
        path = run / "profile" / "time.json"
        content = json.loads(path.read_text())
        content["ranks"].append({**content["ranks"][0], "rank": 1, "compute_s": 0.0})
        path.write_text(json.dumps(content))
    runs = [("r1", "finished", None), ("r2", "finished", None)]
    (row,) = table(write_study(tmp_path / "s", [{"label": "p", "runs": runs}]))
    assert [float(row[f"profiled_{name}"]) for name in names] == [1.5, 3.0, 1.0, 0.5, 0.5]

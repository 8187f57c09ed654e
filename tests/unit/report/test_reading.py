"""Run directories as crashes, full disks and editors leave them: named, never fatal."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mlm.errors import DataError
from mlm.report.build import build
from mlm.report.gather import gather
from mlm.report.run import read_run
from tests.unit.report.written import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", windows=[(1, 1.0), (4, 0.5), (5, 0.4), (5, 0.4)], valid=[(15, 4.5)])


def test_an_undamaged_run_has_no_flaw(run):
    found = read_run(run)
    assert found.flaws == []
    assert [r["step"] for r in found.train] == list(range(1, 16))
    assert [r["loss"] for r in found.valid] == [4.5]
    assert found.command == ["mlm-train", "model=gpt2_tiny", "data.path=my text.txt"]
    assert found.device == "CPU, 1 thread a process"


def test_a_cut_off_last_line_is_left_out_and_named(run):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    found = read_run(run)
    assert found.flaws == ["metrics.jsonl: line 16 is cut off and left out"]
    assert (len(found.train), found.valid) == (15, [])


def test_lines_that_are_no_records_are_left_out_and_counted(run):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    lines[2], lines[4], lines[6] = "\0\0\0", "[1, 2]", '{"kind": "train", "step": 7}'
    path.write_text("\n".join(lines) + "\n")
    found = read_run(run)
    assert found.flaws == ["metrics.jsonl: line 3 and 2 more cannot be read and is left out"]
    assert [r["step"] for r in found.train] == [1, 2, 4, 6, *range(8, 16)]


def test_a_run_without_summary_is_unfinished_and_says_how_far_it_came(run):
    (run / "summary.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(lines[:7]) + "\n")
    found = read_run(run)
    assert not found.is_finished
    assert found.flaws == ["unfinished: step 7 of 15 was the last one written"]


@pytest.mark.parametrize(
    ("file", "content", "flaw"),
    [
        ("summary.json", "{", "summary.json cannot be read (not JSON)"),
        ("summary.json", "[]", "summary.json holds no JSON object"),
        (
            "summary.json",
            '{"flops_per_step": "many"}',
            "summary.json: flops_per_step=many is no number of FLOPs",
        ),
        ("environment.json", None, "environment.json is missing"),
        ("environment.json", "\x80", "environment.json cannot be read (not JSON)"),
        ("profile/time.json", "{", "profile/time.json cannot be read"),
        ("profile/time.json", '{"steps": [1], "ranks": []}', "profile/time.json is not a table of times"),
        (
            "profile/time.json",
            '{"steps": [1], "ranks": [{"compute_s": 1}]}',
            "profile/time.json is not a table of times",
        ),
    ],
)
def test_a_damaged_file_beside_the_metrics_is_a_flaw(run, file, content, flaw):
    path = run / file
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    assert flaw in read_run(run).flaws


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.yaml", None, "config.yaml is missing"),
        ("config.yaml", "model: [", "config.yaml"),
        ("config.yaml", "a: 1", "config.yaml"),
        ("metrics.jsonl", None, "metrics.jsonl is missing"),
        ("metrics.jsonl", "", "no training step is recorded"),
        ("metrics.jsonl", '{"kind": "tr', "metrics.jsonl: line 1 is cut off and left out; no training step"),
    ],
)
def test_without_configuration_or_steps_there_is_one_sentence_why(run, file, content, reason):
    (run / file).unlink()
    if content is not None:
        (run / file).write_text(content)
    with pytest.raises(DataError) as raised:
        read_run(run)
    assert str(raised.value).startswith(reason)


def test_a_configuration_of_no_possible_model_is_damaged_not_a_crash(run):
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("num_heads: 4", "num_heads: 0"))
    with pytest.raises(DataError, match="describes no model"):
        read_run(run)


def test_flops_are_those_the_run_has_stated_and_else_the_formula_s(tmp_path):
    small = ["model.num_layers=2"]
    stated = read_run(write_run(tmp_path / "a", small, windows=[(6, 1.0)], flops=123.0))
    computed = read_run(write_run(tmp_path / "b", small, windows=[(6, 1.0)]))
    assert stated.work.flops == 123.0
    # 72 B s l h^2 (1 + s/6h + V/12lh) with B=4, s=64, l=2, h=64, V=264.
    assert computed.work.flops == pytest.approx(72 * 4 * 64 * 2 * 64**2 * (1 + 1 / 6 + 264 / (12 * 2 * 64)))
    # l(12h^2 + 13h) + Vh + sh + 2h.
    assert computed.work.parameters == 2 * (12 * 64**2 + 13 * 64) + 264 * 64 + 64 * 64 + 2 * 64


def test_the_device_is_named_by_the_machine_unless_the_run_was_on_cpus(run):
    about = json.loads((run / "environment.json").read_text())
    about["machine"]["accelerators"] = [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]
    (run / "environment.json").write_text(json.dumps(about))
    assert read_run(run).device == "CPU, 1 thread a process"
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("device: cpu", "device: cuda"))
    assert read_run(run).device == "NVIDIA H200"


def test_a_run_as_long_as_the_paper_s_is_read_and_drawn_in_seconds(tmp_path):
    run = write_run(tmp_path / "a", windows=[(1, 9.0), *[(10, 1.0 + n % 7 / 100) for n in range(30_000)]])
    started = time.process_time()
    built = build(gather([run], baseline=None, warmup_steps=None))
    # 300,001 steps; anything quadratic in them or an artist per window takes minutes.
    assert time.process_time() - started < 20
    page = built.files["index.html"]
    assert len(page) < 1e6
    assert "a training point is the mean of up to 751 steps" in str(page)

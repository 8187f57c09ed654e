"""What a reader is warned of, each from runs that give cause and from runs that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlm.report.cautions import cautions
from mlm.report.gather import gather
from mlm.report.rows import rows
from tests.unit.report.written import ENVIRONMENT, write_run, write_study

STEADY = [(1, 9.0), (4, 3.0), *[(5, 1.0)] * 5]


def found(*folders: Path, baseline: str | None = None) -> list[str]:
    (group,) = gather(folders, baseline=baseline, warmup_steps=None)
    return cautions(group, rows(group))


def pair(folder: Path, environment: dict[str, Any] | None = None, *overrides: str) -> list[str]:
    write_run(folder / "a", windows=STEADY)
    write_run(folder / "b", overrides, windows=STEADY, environment=environment)
    return found(folder / "a", folder / "b")


def test_equal_conditions_and_steady_times_give_no_warning(tmp_path):
    assert pair(tmp_path) == []


@pytest.mark.parametrize(
    ("environment", "warning"),
    [
        ({"host": "host-2"}, "Runs on different machines: host-1, host-2."),
        (
            {"versions": {**ENVIRONMENT["versions"], "torch": "2.12.0"}},
            "Runs on different versions of torch: 2.13.0, 2.12.0.",
        ),
        (
            {"versions": {**ENVIRONMENT["versions"], "mlm": "0.2.0"}},
            "Runs on different versions of mlm: 0.1.0, 0.2.0.",
        ),
        (
            {"source": {"commit": "b" * 40, "modified": False}},
            f"Runs on different commits of mlm: {'a' * 40}, {'b' * 40}.",
        ),
        (
            {"source": {"commit": "a" * 40, "modified": True}},
            "The code of 1 of 2 runs was edited after its commit, so the commit alone does not repeat it.",
        ),
    ],
)
def test_a_mixed_environment_is_pointed_out(tmp_path, environment, warning):
    assert pair(tmp_path, environment) == [warning]


def test_mixed_precision_of_runs_is_pointed_out(tmp_path):
    assert pair(tmp_path, None, "precision=bf16") == ["Runs on different precisions: auto, bf16."]


@pytest.mark.parametrize(("times", "is_wide"), [((0.95, 1.0, 1.05), True), ((0.98, 1.0, 1.02), False)])
def test_quartiles_more_than_five_percent_apart_are_pointed_out(tmp_path, times, is_wide):
    low, middle, high = times
    spans = [(1, 9.0), (4, 3.0), *((5, t) for t in (low, low, middle, high, high))]
    write_run(tmp_path / "a", windows=spans)
    wide = ["Step times scatter by more than 5 % between quartiles: a (10.0 %)."]
    assert found(tmp_path / "a") == (wide if is_wide else [])


@pytest.mark.parametrize(("windows", "is_few"), [(4, True), (5, False)])
def test_too_few_windows_are_pointed_out(tmp_path, windows, is_few):
    write_run(tmp_path / "a", windows=[(1, 9.0), (4, 3.0), *[(5, 1.0)] * windows])
    few = [f"Fewer than 5 timing windows, too few for quartiles: a ({windows})."]
    assert found(tmp_path / "a") == (few if is_few else [])


def test_missing_points_repeats_and_baseline_of_a_study_are_pointed_out(tmp_path):
    write_run(tmp_path / "b" / "r1", windows=STEADY)
    points = [
        {"label": "a", "runs": [("a/r1", "failed", "no memory")]},
        {"label": "b", "runs": [("b/r1", "finished", None), ("b/r2", "pending", None)]},
    ]
    study = write_study(tmp_path, points, baseline="a", scaling="weak", repeats=2)
    assert found(study) == [
        "No figures for a: see what is said of unfinished, failed and damaged runs.",
        "The baseline a has no figures, so there is no efficiency.",
        "Fewer repeats than planned: b (1 of 2).",
    ]

"""What is named becomes groups and points: studies with every kind of end, loose runs, folders, baselines."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from mlm.errors import ConfigError
from mlm.report.gather import gather
from mlm.report.points import Group
from mlm.report.rows import rows
from mlm.report.tables import points_csv, runs_csv
from tests.unit.report.written import write_run, write_study

STEADY = [(1, 9.0), (4, 3.0), (5, 1.0), (5, 1.0)]


def groups(*folders: Path, baseline: str | None = None, warmup_steps: int | None = None) -> list[Group]:
    return gather(folders, baseline=baseline, warmup_steps=warmup_steps)


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Three repeats at tp=1; at tp=2 one finished, one failed, one killed; the rest refused or not run."""
    folder = tmp_path / "study"
    faster = [(1, 9.0), (4, 3.0), (5, 0.5), (5, 0.5)]
    for repeat in (1, 2, 3):
        write_run(folder / "tp=1" / f"r{repeat}", windows=STEADY)
    write_run(folder / "tp=2" / "r1", ["tp=2"], windows=faster)
    write_run(folder / "tp=2" / "r2", ["tp=2"], windows=[(1, 9.0), (4, 3.0), (5, 70.0)], finished=False)
    write_run(folder / "tp=2" / "r3", ["tp=2"], windows=[(1, 9.0), (4, 3.0), (5, 80.0)], finished=False)
    points = [
        {"label": "tp=1", "runs": [(f"tp=1/r{n}", "finished", None) for n in (1, 2, 3)]},
        {
            "label": "tp=2",
            "runs": [
                ("tp=2/r1", "finished", None),
                ("tp=2/r2", "failed", "rank 1 ran out of memory"),
                ("tp=2/r3", "unfinished", None),
            ],
        },
        {"label": "tp=4", "runs": [("tp=4/r1", "refused", "2 devices are too few")]},
        {"label": "tp=8", "runs": [("tp=8/r1", "pending", None)]},
    ]
    return write_study(folder, points, scaling="weak", baseline="tp=1", repeats=3)


def test_only_finished_repeats_of_a_study_are_in_its_table(study):
    (group,) = groups(study)
    table = lines(points_csv([(group, rows(group))]))
    assert [(r["point"], r["status"], r["runs"], r["windows"], r["step_time_median_s"]) for r in table] == [
        ("tp=1", "finished", "3", "6", "1.0"),
        ("tp=2", "failed, unfinished", "1", "2", "0.5"),
        ("tp=4", "refused", "", "", ""),
        ("tp=8", "pending", "", "", ""),
    ]
    # Twice the devices, the same work, half of the time.
    assert [r["efficiency_by_flops"] for r in table] == ["1.0", "1.0", "", ""]
    assert [r["is_baseline"] for r in table] == ["true", "false", "false", "false"]


def test_every_run_of_a_study_is_in_runs_csv_with_what_became_of_it(study):
    table = lines(runs_csv(groups(study)))
    found = [(r["run"].rpartition("study/")[2], r["status"], r["counts"], r["reason"]) for r in table]
    assert found[:4] == [
        ("tp=1/r1", "finished", "true", ""),
        ("tp=1/r2", "finished", "true", ""),
        ("tp=1/r3", "finished", "true", ""),
        ("tp=2/r1", "finished", "true", ""),
    ]
    assert found[4][1:3] == ("failed", "false")
    assert found[4][3].startswith("rank 1 ran out of memory; unfinished: step 10 of 10")
    assert found[5] == (
        "tp=2/r3",
        "unfinished",
        "false",
        "unfinished: step 10 of 10 was the last one written",
    )
    assert found[6:] == [
        ("tp=4/r1", "refused", "false", "2 devices are too few"),
        ("tp=8/r1", "pending", "false", "not run yet"),
    ]
    assert float(table[0]["step_time_mean_s"]) == 1.0


def test_a_finished_run_that_was_damaged_since_is_out_of_the_table_and_named(study):
    (study / "tp=1" / "r2" / "metrics.jsonl").write_text("")
    (group,) = groups(study)
    attempt = group.points[0].attempts[1]
    assert (attempt.status, attempt.reason, attempt.counts) == (
        "damaged",
        "no training step is recorded",
        False,
    )
    assert len(group.points[0].runs) == 2


def test_the_study_s_warm_up_counts_unless_another_is_given(study):
    assert groups(study)[0].points[0].timing.windows == 6
    assert groups(study, warmup_steps=10)[0].points[0].timing.windows == 3
    assert groups(study, warmup_steps=0)[0].points[0].timing.windows == 12


def test_points_without_a_window_after_the_warm_up_say_so(tmp_path):
    write_run(tmp_path / "short", windows=[(1, 1.0), (9, 1.0)])
    (group,) = groups(tmp_path / "short")
    assert group.points[0].timing is None
    reason = group.points[0].attempts[0].reason
    assert reason == "no figures: no timing window begins after the 5 warm-up steps"


def test_loose_runs_are_points_of_their_own_named_by_as_much_of_their_path_as_differs(tmp_path):
    for name in ("x/a", "y/a", "y/b"):
        write_run(tmp_path / name, windows=STEADY)
    assert [p.label for p in groups(tmp_path / "y/a", tmp_path / "y/b")[0].points] == ["a", "b"]
    assert [p.label for p in groups(tmp_path / "x/a", tmp_path / "y/a")[0].points] == ["x/a", "y/a"]


def test_a_folder_stands_for_the_runs_and_studies_below_it(tmp_path, study):
    write_run(tmp_path / "loose" / "a", windows=STEADY)
    write_run(tmp_path / "loose" / ".hidden", windows=STEADY)
    found = groups(tmp_path)
    assert [(g.is_study, [p.label for p in g.points]) for g in found] == [
        (True, ["tp=1", "tp=2", "tp=4", "tp=8"]),
        (False, ["a"]),
    ]


def test_runs_below_a_folder_are_in_the_order_of_their_numbers(tmp_path):
    for name in ("tp=16", "tp=2", "dp=4", "a"):
        write_run(tmp_path / name, windows=STEADY)
    assert [p.label for p in groups(tmp_path)[0].points] == ["a", "dp=4", "tp=2", "tp=16"]


def test_a_run_named_twice_or_beside_its_study_is_there_once(study):
    found = groups(study, study / "tp=1" / "r1", study)
    assert len(found) == 1
    again = groups(study / "tp=1" / "r1", study / "tp=1" / ".." / "tp=1" / "r1")
    assert [len(g.points) for g in again] == [1]


def test_the_baseline_can_be_a_label_or_a_directory(tmp_path, study):
    assert groups(study, baseline="tp=2")[0].baseline.label == "tp=2"
    assert groups(study, baseline=str(study / "tp=2" / "r1"))[0].baseline.label == "tp=2"
    write_run(tmp_path / "a", ["tp=2"], windows=STEADY)
    write_run(tmp_path / "b", windows=STEADY)
    assert groups(tmp_path / "a", tmp_path / "b")[0].baseline.label == "b", "the smaller one"
    assert groups(tmp_path / "a", tmp_path / "b", baseline="a")[0].baseline.label == "a"
    assert groups(tmp_path / "a")[0].baseline is None


def test_a_baseline_that_was_not_measured_leaves_efficiency_out(study):
    (group,) = groups(study, baseline="tp=4")
    assert all(row.relative is None for row in rows(group))


def test_everything_that_is_wrong_with_what_was_named_is_said_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "weak", windows=STEADY)
    with pytest.raises(ConfigError) as raised:
        groups(tmp_path / "week", tmp_path / "empty", tmp_path / "weak" / "config.yaml")
    wrong = [
        (p.where.rpartition("/")[2], p.wrong, p.remedy.rpartition("/")[2]) for p in raised.value.problems
    ]
    assert wrong == [
        ("week", "does not exist", "weak?"),
        ("empty", "holds no run", "name a folder that mlm-train wrote, or one that holds such"),
        ("config.yaml", "is a file", "weak"),
    ]
    with pytest.raises(
        ConfigError, match="baseline=week is neither a point's label nor a run's directory: use weak"
    ):
        groups(tmp_path / "weak", baseline="week")


def test_a_broken_study_json_is_named_and_other_runs_are_reported(tmp_path, study):
    (study / "study.json").write_text('{"format": 1, "na')
    write_run(tmp_path / "a", windows=STEADY)
    (group,) = groups(study, tmp_path / "a")
    assert [(p.label, p.status) for p in group.points] == [("a", "finished"), ("study", "damaged")]
    assert "study.json is not JSON" in group.points[1].attempts[0].reason


def test_control_characters_of_names_and_messages_reach_nobody(tmp_path):
    message = "rank 0:\n\x1b[31mred\ttape\x07"
    points = [{"label": "a\x1b[2J", "runs": [("r1", "failed", message)]}]
    (group,) = groups(write_study(tmp_path / "s", points, title="one\ntwo"))
    assert group.title == "one two"
    assert group.points[0].label == "a\ufffd[2J"
    assert group.points[0].attempts[0].reason == "rank 0: \ufffd[31mred tape\ufffd"


def test_a_study_that_was_moved_is_still_read(study, tmp_path):
    shutil.move(study, tmp_path / "elsewhere")
    (group,) = groups(tmp_path / "elsewhere")
    assert group.points[0].timing is not None
    assert json.loads((tmp_path / "elsewhere" / "study.json").read_text())["name"] == "study"

"""study.json says the same after it was read back, and never claims more than the directories hold."""

from __future__ import annotations

import json

import pytest

from mlm.errors import ConfigError, DivergedError
from mlm.failures import record_failure
from mlm.studies import record
from mlm.studies.record import read_study, write_study
from tests.unit.studies.writing import finish, planned

ONE, TWO = ["model=gpt2_tiny", "seed=1"], ["model=gpt2_tiny", "seed=2"]


def test_what_is_written_is_read_back(tmp_path):
    study = planned(tmp_path, ONE, TWO, repeats=2)
    study.points[0].series, study.points[0].published_key = "tensor parallel", 4
    study.scaling, study.baseline, study.published, study.warmup_steps = "weak", "seed=1", "figure5_tp", 3
    run = study.points[1].runs[0]
    run.status, run.exit_code, run.message = record.FAILED, 1, "rank 1: ValueError: boom"
    write_study(study)
    assert read_study(tmp_path) == study
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"], "nothing is left beside it"


def test_the_file_has_the_documented_keys(tmp_path):
    write_study(planned(tmp_path, ONE))
    content = json.loads((tmp_path / "study.json").read_text())
    assert list(content) == [
        "format",
        "name",
        "title",
        "command",
        "scaling",
        "baseline",
        "published",
        "warmup_steps",
        "compare",
        "panels",
        "curves",
        "repeats",
        "points",
    ]
    assert content["format"] == 1
    (point,) = content["points"]
    assert set(point) == {"label", "series", "published_key", "overrides", "runs"}
    assert set(point["runs"][0]) == {"dir", "hash", "asked", "status", "exit_code", "message", "command"}


@pytest.mark.parametrize(
    ("status", "is_there", "becomes"),
    [
        (record.UNFINISHED, True, record.FINISHED),
        (record.SUBMITTED, True, record.FINISHED),
        (record.SUBMITTED, False, record.SUBMITTED),
        (record.FINISHED, True, record.FINISHED),
        (record.FINISHED, False, record.UNFINISHED),
        (record.FAILED, False, record.FAILED),
        (record.DIVERGED, True, record.DIVERGED),
        (record.DIVERGED, False, record.UNFINISHED),
        (record.PENDING, True, record.PENDING),
        (record.REFUSED, True, record.REFUSED),
    ],
)
def test_a_status_follows_what_the_directory_holds(tmp_path, status, is_there, becomes):
    study = planned(tmp_path, ONE)
    study.points[0].runs[0].status = status
    if is_there:
        finish(tmp_path / "seed=1" / "r1", ONE)
    write_study(study)
    assert read_study(tmp_path).points[0].runs[0].status == becomes


def test_a_submitted_run_whose_ranks_failed_has_failed(tmp_path):
    study = planned(tmp_path, ONE)
    study.points[0].runs[0].status = record.SUBMITTED
    write_study(study)
    record_failure(tmp_path / "seed=1" / "r1", 3, ValueError("boom"))
    run = read_study(tmp_path).points[0].runs[0]
    assert (run.status, run.exit_code, run.message) == ("failed", 1, "rank 3: ValueError: boom")


def test_a_submitted_run_that_diverged_has_diverged(tmp_path):
    study = planned(tmp_path, ONE)
    study.points[0].runs[0].status = record.SUBMITTED
    write_study(study)
    record_failure(tmp_path / "seed=1" / "r1", 0, DivergedError("step 7: loss=nan"))
    (tmp_path / "seed=1" / "r1" / "config.yaml").touch()
    run = read_study(tmp_path).points[0].runs[0]
    assert (run.status, run.exit_code, run.message) == ("diverged", 1, "step 7: loss=nan")


@pytest.mark.parametrize("compare", [None, "loss"])
@pytest.mark.parametrize("status", record.STATUSES)
def test_divergence_is_an_answer_to_a_study_of_losses_and_to_no_other(tmp_path, status, compare):
    study = planned(tmp_path, ONE)
    study.compare, run = compare, study.points[0].runs[0]
    run.status = status
    answers = {"finished", "diverged"} if compare else {"finished"}
    assert study.is_result(run) == (status in answers)
    assert study.is_seen_to(run) == (status in {*answers, "submitted"})


def test_a_directory_with_another_configuration_is_not_the_run_that_was_meant(tmp_path):
    study = planned(tmp_path, ONE)
    study.points[0].runs[0].status = record.FINISHED
    finish(tmp_path / "seed=1" / "r1", TWO)
    write_study(study)
    run = read_study(tmp_path).points[0].runs[0]
    assert (run.status, run.message) == ("unfinished", "seed=1/r1 no longer holds the run it held")


def test_keys_of_a_later_version_are_passed_over(tmp_path):
    write_study(planned(tmp_path, ONE))
    path = tmp_path / "study.json"
    content = json.loads(path.read_text())
    content["colour"] = content["points"][0]["colour"] = content["points"][0]["runs"][0]["colour"] = "blue"
    path.write_text(json.dumps(content))
    assert read_study(tmp_path) == planned(tmp_path, ONE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "has format None"),
        ('{"format": 2}', "has format 2, and this version of mlm reads 1"),
        ('{"format": 1, "name": "x"}', "is damaged"),
        ('{"format": 1, "name": "x", "points": [{"runs": 3}]}', "is damaged"),
    ],
)
def test_what_is_no_study_json_of_ours_is_refused_with_its_path(tmp_path, text, says):
    if text is not None:
        (tmp_path / "study.json").write_text(text)
    with pytest.raises(ConfigError, match=says) as refused:
        read_study(tmp_path)
    assert refused.value.problems[0].where == str(tmp_path / "study.json")

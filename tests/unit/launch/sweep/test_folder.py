"""Where a sweep writes, whom it keeps out, and what it does not run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlm.errors import ConfigError
from mlm.launch.sweep.folder import carry_over, choose_folder, folder_problems, locked, shown_path
from mlm.studies import record
from mlm.studies.record import write_study
from tests.unit.studies.writing import finish, planned

ONE, TWO = ["model=gpt2_tiny", "seed=1"], ["model=gpt2_tiny", "seed=2"]


def test_the_same_sweep_finds_its_folder_again_in_any_order_and_however_it_is_launched(tmp_path):
    typed = ["tp=1,2", "seed=1,2"]
    folder = choose_folder(None, None, typed, tmp_path)
    assert folder.parent == tmp_path / "runs"
    assert choose_folder(None, None, [*reversed(typed), "launch=dry_run"], tmp_path) == folder
    assert choose_folder(None, None, [*typed, "launch.mode=local"], tmp_path) == folder
    assert choose_folder(None, None, [*typed, "launch.threads=1"], tmp_path) != folder
    assert choose_folder(None, None, ["tp=1,2"], tmp_path) != folder


def test_a_study_s_folder_has_its_name_and_sweep_dir_wins(tmp_path):
    assert choose_folder(None, "mine", ["tp=1"], tmp_path) == tmp_path / "runs" / "mine"
    assert choose_folder("/elsewhere", "mine", ["tp=1"], tmp_path) == Path("/elsewhere")


def test_a_folder_of_something_else_is_refused_and_one_s_own_is_not(tmp_path):
    folder = tmp_path / "s"
    assert folder_problems(folder, "mine") == []
    folder.mkdir()
    assert folder_problems(folder, "mine") == []
    (folder / "notes.txt").write_text("x")
    assert "already holds files" in folder_problems(folder, "mine")[0].wrong
    write_study(planned(folder, ONE))
    assert folder_problems(folder, "mine") == []
    (other,) = folder_problems(folder, "yours")
    assert (other.wrong, other.remedy) == (
        "already holds mine, and this is yours",
        f"use sweep_dir={folder}-2",
    )
    (folder / "study.json").write_text("{")
    assert "is not JSON" in folder_problems(folder, "mine")[0].wrong


@pytest.mark.parametrize("status", record.STATUSES)
@pytest.mark.parametrize("is_queued", [True, False])
def test_what_became_of_a_run_before_is_known_and_a_job_that_is_gone_unfinished(tmp_path, status, is_queued):
    before = planned(tmp_path, ONE, TWO)
    before.points[0].runs[0].status = status
    if status in (record.FINISHED, record.DIVERGED):
        finish(tmp_path / "seed=1" / "r1", ONE)
    write_study(before)
    again = planned(tmp_path, TWO, ONE)
    carry_over(again, lambda run_dir: is_queued)
    expected = record.PENDING if status == record.REFUSED else status
    if status == record.SUBMITTED and not is_queued:
        expected = record.UNFINISHED
    found = {point.label: point.runs[0].status for point in again.points}
    assert found == {"seed=2": record.PENDING, "seed=1": expected}


def test_what_is_tried_again_is_tried_by_the_command_as_it_is_now(tmp_path):
    before = planned(tmp_path, ONE)
    run = before.points[0].runs[0]
    run.status, run.exit_code, run.message, run.dir = (
        record.FAILED,
        1,
        "rank 0: ValueError: boom",
        "seed=1/r1-2",
    )
    run.command = ["mlm-train", "launch=local"]
    write_study(before)
    again = planned(tmp_path, ONE)
    command = list(again.points[0].runs[0].command)
    carry_over(again, lambda run_dir: True)
    found = again.points[0].runs[0]
    assert (found.status, found.exit_code, found.message, found.dir) == (
        record.FAILED,
        1,
        "rank 0: ValueError: boom",
        "seed=1/r1-2",
    )
    assert found.command == command


def test_a_finished_run_of_another_configuration_is_run_again(tmp_path):
    before = planned(tmp_path, ONE)
    before.points[0].runs[0].status = record.FINISHED
    finish(tmp_path / "seed=1" / "r1", ONE)
    write_study(before)
    changed = planned(tmp_path, ["model=gpt2_tiny", "launch.threads=1", "seed=1"])
    carry_over(changed, lambda run_dir: True)
    assert changed.points[0].runs[0].status == record.PENDING


def test_a_second_sweep_is_kept_out_and_so_are_those_after_a_killed_one_s_child(tmp_path):
    folder = tmp_path / "s"
    with locked(folder) as held:
        with pytest.raises(ConfigError, match="is being written by another mlm-train -m"), locked(folder):
            pytest.fail("two sweeps in one folder")
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            pass_fds=[held],
            stdout=subprocess.DEVNULL,
        )
    try:
        with pytest.raises(ConfigError, match="is being written"), locked(folder):
            pytest.fail("the run of the earlier sweep still goes on")
    finally:
        child.communicate(b"\n")
    with locked(folder):
        pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be made"), locked(tmp_path / "file" / "s"):
        pytest.fail("there is no such folder")


def test_paths_are_shown_as_one_would_type_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "runs" / "x") == os.path.join("runs", "x")
    assert shown_path(tmp_path.parent / "x") == str(tmp_path.parent / "x")

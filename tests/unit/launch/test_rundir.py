from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from mlm.errors import ConfigError
from mlm.launch import rundir

NOW = datetime(2026, 3, 1, 12, 30, 5)


def test_names_taken_within_a_second_get_a_number(tmp_path: Path) -> None:
    first = rundir.create(rundir.choose(None, "gpt2_tiny", tmp_path, NOW), given=False)
    second = rundir.create(rundir.choose(None, "gpt2_tiny", tmp_path, NOW), given=False)
    third = rundir.create(first, given=False)  # lost the race between choosing and making
    names = [path.name for path in (first, second, third)]
    assert names == [f"gpt2_tiny-20260301-123005{end}" for end in ("", "-2", "-3")]


def test_a_model_name_cannot_lead_out_of_runs(tmp_path: Path) -> None:
    assert rundir.choose(None, "../../etc", tmp_path, NOW).parent == tmp_path / "runs"


def test_a_given_directory_is_taken_from_the_working_directory(tmp_path: Path) -> None:
    assert rundir.choose("my/run", "m", tmp_path, NOW) == tmp_path / "my/run"


def test_a_directory_with_a_run_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("tp: 1\n")
    (problem,) = rundir.problems(run)
    assert "already holds a run, which is never overwritten" in problem.wrong
    assert problem.remedy == f"use run_dir={run}-2, or resume=auto to continue it"
    with pytest.raises(ConfigError):
        rundir.create(run, given=True)
    assert [path.name for path in run.iterdir()] == ["config.yaml"]


def test_an_empty_directory_is_as_good_as_none(tmp_path: Path) -> None:
    assert rundir.problems(tmp_path) == []
    assert rundir.create(tmp_path, given=True) == tmp_path


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, said in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file/a/b", f"{tmp_path}/file is a file"),
    ):
        (problem,) = rundir.problems(path)
        assert said in problem.wrong
        with pytest.raises(ConfigError):
            rundir.create(path, given=True)


def test_a_directory_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # os.access is replaced because the tests may run as root, who may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    (problem,) = rundir.problems(tmp_path / "a" / "b")
    assert f"no permission in {tmp_path}" in problem.wrong

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mlm.errors import ConfigError, DataError, Problem
from mlm.failures import LAUNCHER_PID, read_failures, record_failure


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.fixture(autouse=True)
def _under_our_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER_PID, "1")


def test_a_recorded_failure_reads_back_with_rank_time_and_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = time.time()
    record_failure(tmp_path, 3, raised(ValueError("boom")))
    (failure,) = read_failures(tmp_path)
    assert (failure.rank, failure.type, failure.message, failure.user_error) == (
        3,
        "ValueError",
        "boom",
        False,
    )
    assert before <= failure.time_s <= time.time()
    assert "raise error\nValueError: boom" in failure.traceback
    assert [path.name for path in (tmp_path / "errors").iterdir()] == ["rank_3.json"]
    assert capsys.readouterr().err == "", "the launcher shows it"


def test_failures_come_back_earliest_first_and_other_files_are_passed_over(tmp_path: Path) -> None:
    for rank in (2, 0, 1):
        record_failure(tmp_path, rank, raised(ValueError(str(rank))))
        time.sleep(0.002)
    (tmp_path / "errors" / "rank_7.json").write_text("{")
    (tmp_path / "errors" / "rank_8.json").write_text(json.dumps({"rank": 8}))
    assert [failure.rank for failure in read_failures(tmp_path)] == [2, 0, 1]
    assert read_failures(tmp_path / "nothing") == []


@pytest.mark.parametrize("error", [DataError("no file"), ConfigError(Problem("tp=3", "is odd", "use 2"))])
def test_errors_made_for_users_are_marked(tmp_path: Path, error: Exception) -> None:
    record_failure(tmp_path, 0, raised(error))
    assert read_failures(tmp_path)[0].user_error


def test_without_a_launcher_of_ours_the_failure_is_printed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(LAUNCHER_PID)
    record_failure(tmp_path, 1, raised(ValueError("boom")))
    record_failure(tmp_path, 2, raised(DataError("no file")))
    said = capsys.readouterr().err
    assert "rank 1" in said
    assert "ValueError: boom" in said
    assert "DataError: no file" in said
    assert said.count("Traceback") == 1


def test_a_failure_that_cannot_be_written_is_printed_instead_of_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "errors").write_text("a file where the folder would be")
    record_failure(tmp_path, 1, raised(ValueError("boom")))
    assert "ValueError: boom" in capsys.readouterr().err

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mlm.errors import DataError
from mlm.eval.files import DataFile, file_keys, find_files, read_source

TEXT = b"some words\n"
SHA256 = hashlib.sha256(TEXT).hexdigest()
MAIN = DataFile("main", "main.txt", len(TEXT), SHA256, origin="made here")
FURTHER = DataFile("further", "further.txt", len(TEXT), SHA256, origin="made here", required=False)
FILES = (MAIN, FURTHER)


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLM_DATA", raising=False)
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))


def test_the_first_file_has_the_tasks_key_and_others_their_role():
    assert file_keys("task", FILES) == {"task": MAIN, "task.further": FURTHER}


def test_a_missing_file_is_one_message_with_name_size_sha256_and_where_it_goes(tmp_path: Path):
    paths, problems = find_files("task", FILES, {}, prefix="eval.")
    assert paths == {}
    (problem,) = problems
    for part in ("main.txt", "11 bytes", SHA256, "MLM_DATA", str(tmp_path / "cache" / "eval"), "made here"):
        assert part in str(problem)
    assert "eval.task_paths.task=PATH" in problem.remedy


@pytest.mark.parametrize("where", ["data", "data/folder", "cache/eval"])
def test_the_published_file_is_found_in_mlm_data_and_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    monkeypatch.setenv("MLM_DATA", str(tmp_path / "data"))
    path = tmp_path / where / "main.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(TEXT)
    assert find_files("task", FILES, {}) == ({"main": path}, [])


def test_a_damaged_file_is_passed_over_where_it_is_looked_for_but_taken_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLM_DATA", str(tmp_path))
    path = tmp_path / "main.txt"
    path.write_bytes(TEXT[:-1])
    _, (problem,) = find_files("task", FILES, {})
    assert str(path) in problem.where
    assert "not the published file" in problem.wrong
    paths, problems = find_files("task", FILES, {"task": str(path)})
    assert (paths, problems) == ({"main": path}, [])
    assert not read_source(path, MAIN).published


def test_a_further_file_is_taken_from_beside_the_one_named(tmp_path: Path):
    for name in ("mine.txt", "further.txt"):
        (tmp_path / name).write_bytes(b"other words\n")
    paths, problems = find_files("task", FILES, {"task": str(tmp_path / "mine.txt")})
    assert paths == {"main": tmp_path / "mine.txt", "further": tmp_path / "further.txt"}
    assert not problems


def test_a_named_file_has_to_be_there(tmp_path: Path):
    given = {"task": str(tmp_path), "task.further": str(tmp_path / "none.txt")}
    _, problems = find_files("task", FILES, given)
    assert [problem.where for problem in problems] == [
        f"task_paths.task={tmp_path}",
        f"task_paths.task.further={tmp_path}/none.txt",
    ]
    assert "is a folder" in problems[0].wrong
    assert "is no such file" in problems[1].wrong


def test_a_file_that_only_the_user_can_name_is_asked_for():
    _, (problem,) = find_files("perplexity", (DataFile("text"),), {})
    assert str(problem).startswith("task_paths.perplexity is not set: give a text file")


def test_what_was_read_is_recorded(tmp_path: Path):
    path = tmp_path / "main.txt"
    path.write_bytes(TEXT)
    assert read_source(path, MAIN).record() == {
        "file": "main.txt",
        "file_bytes": 11,
        "file_sha256": SHA256,
        "file_published": True,
    }


@pytest.mark.parametrize(
    ("raw", "wrong"),
    [(b"", "holds no text"), (b" \n", "holds no text"), (b"ab\xff", "0xff at byte offset 2")],
)
def test_a_file_without_text_is_refused_by_name(tmp_path: Path, raw: bytes, wrong: str):
    path = tmp_path / "main.txt"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=rf"main\.txt .*{wrong}"):
        read_source(path, MAIN)

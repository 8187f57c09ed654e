from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlm.data.cache import INFO, cache_root, cached
from mlm.errors import DataError


def build_one(folder: Path) -> dict[str, object]:
    (folder / "file").write_bytes(b"some bytes")
    return {"answer": 42}


def never(folder: Path) -> dict[str, object]:
    raise AssertionError("built although it was there")


def test_an_entry_is_built_once(tmp_path: Path):
    folder, info = cached(tmp_path / "new" / "cache", "key", build_one)
    assert info == {"answer": 42}
    assert cached(tmp_path / "new" / "cache", "key", never) == (folder, info)
    assert (folder / "file").read_bytes() == b"some bytes"


@pytest.mark.parametrize("file", ["file", INFO])
@pytest.mark.parametrize("damage", ["removed", "truncated", "one byte", "emptied"])
def test_a_damaged_entry_is_built_again(tmp_path: Path, file: str, damage: str):
    folder, info = cached(tmp_path, "key", build_one)
    path = folder / file
    raw = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        changed = bytes([raw[0], raw[1] ^ 1, *raw[2:]])
        path.write_bytes({"truncated": raw[:-3], "emptied": b"", "one byte": changed}[damage])
    assert cached(tmp_path, "key", build_one) == (folder, info)
    assert path.read_bytes() == raw
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_changed_number_in_the_information_is_noticed(tmp_path: Path):
    folder, _ = cached(tmp_path, "key", build_one)
    (folder / INFO).write_text((folder / INFO).read_text().replace("42", "43"))
    assert cached(tmp_path, "key", build_one)[1] == {"answer": 42}


@pytest.mark.parametrize("damaged", [False, True])
def test_launches_that_build_at_once_all_get_the_one_entry(tmp_path: Path, damaged: bool):
    if damaged:
        (cached(tmp_path, "key", build_one)[0] / "file").unlink()
    together = threading.Barrier(4)

    def build(folder: Path) -> dict[str, object]:
        together.wait(timeout=20)
        return build_one(folder)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: cached(tmp_path, "key", build), range(4)))
    assert results == [(tmp_path / "key", {"answer": 42})] * 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        cached(tmp_path, "key", lambda folder: {"answer": 1 // 0})
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path):
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(
        DataError, match=r"the cache .*occupied cannot be written .*data\.cache_dir or MLM_CACHE"
    ):
        cached(tmp_path / "occupied", "key", build_one)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("MLM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_root(None) == Path("/home/someone/.cache/mlm")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_root(None) == Path("/xdg/mlm")
    monkeypatch.setenv("MLM_CACHE", "/chosen")
    assert cache_root(None) == Path("/chosen")
    assert cache_root("~/mine") == Path("/home/someone/mine")

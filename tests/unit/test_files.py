"""A file is there as a whole or as it was before, whatever happens while it is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlm.files import whole_file, whole_folder, write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_content_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "a.json"
    for content in ("first", "zwei: ü\n", b"\x00\xff"):
        write_whole(path, content, durable=durable)
        assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("before", [None, "before"])
def test_an_error_on_the_way_leaves_the_file_as_it_was(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "a.json"
    if before is not None:
        path.write_text(before)

    def write_half() -> None:
        with whole_file(path) as file:
            file.write(b"half of")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [p.read_text() for p in tmp_path.iterdir()] == ([] if before is None else [before])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are looked up in /proc")
def test_a_durable_file_is_on_the_disk_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "a.json", []
    real_sync, real_replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        seen.append(("sync", os.readlink(f"/proc/self/fd/{handle}") == str(tmp_path), path.exists()))
        real_sync(handle)

    def replace(source: Path, target: Path) -> None:
        seen.append(("replace", Path(source).read_bytes()))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    write_whole(path, "content", durable=True)
    assert seen == [("sync", False, False), ("replace", b"content"), ("sync", True, True)]


def test_a_folder_has_its_name_only_when_all_of_it_is_there(tmp_path: Path) -> None:
    def fail() -> None:
        with whole_folder(tmp_path / "made") as folder:
            (folder / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "made").mkdir()
    with whole_folder(tmp_path / "made") as folder:
        (folder / "file").write_text("whole")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["made", "made/file"]

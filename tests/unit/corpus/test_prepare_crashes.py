"""What a prepare leaves that was killed, had no room, or was not alone."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlm.corpus.preparing import partial, pool
from mlm.corpus.preparing import prepare as prepare_module
from mlm.corpus.preparing.partial import Partial, partial_folder
from mlm.corpus.reading import blocks
from mlm.errors import DataError
from tests.unit.corpus.preparing import Prepare, dataset, left_in, preparer, words, write_jsonl


@pytest.fixture
def run(tmp_path: Path) -> Prepare:
    return preparer(tmp_path)


def test_of_two_that_write_the_same_prefix_the_second_is_refused(tmp_path: Path, run: Prepare) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": "a"}])
    first = Partial(tmp_path / "made", ["made_text_document"], {"plan": 1})
    with pytest.raises(DataError, match="is being written by another mlm-data prepare"):
        run(path)
    first.close()
    run(path)
    assert dataset(tmp_path).num_documents == 1


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path, run: Prepare) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": "a"}])
    with pytest.raises(DataError, match=r"made\.partial cannot be made \(Not a directory\)"):
        run(path, prefix=path / "made")


def test_a_full_disk_is_one_clear_error_and_the_same_command_goes_on_later(
    tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(prepare_module, "COMMIT_S", 0.0)
    rng = random.Random(4)
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": words(rng, 30)} for _ in range(100)])
    run(path, prefix=tmp_path / "undisturbed")
    real, room = os.fsync, [17]

    def fsync(descriptor: int) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(partial.os, "fsync", fsync)
        with pytest.raises(DataError, match=r"made\.partial cannot be written \(No space left on device\)"):
            run(path)
    assert left_in(tmp_path) == [
        "made.partial",
        *(f"undisturbed_text_document.{k}" for k in ("bin", "idx", "json")),
    ]
    outcome = run(path)
    assert outcome.resumed
    for kind in ("bin", "idx"):
        whole = (tmp_path / f"undisturbed_text_document.{kind}").read_bytes()
        assert (tmp_path / f"made_text_document.{kind}").read_bytes() == whole


class _Crash(BaseException):
    """As a kill: nothing that runs afterwards may be needed."""


def test_a_crash_at_any_system_call_leaves_nothing_or_what_can_be_gone_on_with(
    tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 600)
    monkeypatch.setattr(prepare_module, "COMMIT_S", 0.0)
    rng = random.Random(5)
    records = [{"text": words(rng, 20), "title": words(rng, 2)} for _ in range(12)]
    path = write_jsonl(tmp_path / "in.jsonl", records)
    old = write_jsonl(tmp_path / "old.jsonl", [{"text": "an earlier dataset", "title": "t"}])
    keys = ("text", "title")
    run(path, prefix=tmp_path / "whole", keys=keys)
    expected = {
        key: [(tmp_path / f"whole_{key}_document.{k}").read_bytes() for k in ("bin", "idx")] for key in keys
    }
    # In this process, without workers: a crash at each call then costs milliseconds, and no kill is missed.
    from mlm.corpus.preparing.encode import Encoder

    class Alone:
        replaced = 0

        def __init__(self, workers: int, recipe: Any):
            self._encoder = Encoder(recipe)

        def __enter__(self) -> Alone:
            return self

        def __exit__(self, *_: object) -> None: ...

        def map(self, questions: Any) -> Any:
            return ((question, self._encoder(question)) for question in questions)

    monkeypatch.setattr(prepare_module, "Pool", Alone)
    crashed = 0
    for number in range(1000):
        folder = tmp_path / f"crash{number}"
        folder.mkdir()
        run(old, prefix=folder / "made", keys=keys)
        left = [number]

        def count(real: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if left[0] == 0:
                    raise _Crash
                left[0] -= 1
                return real(*args, **kwargs)

            return call

        try:
            with monkeypatch.context() as patch:
                for name in ("fsync", "replace"):
                    patch.setattr(os, name, count(getattr(os, name)))
                patch.setattr(Path, "unlink", count(Path.unlink))
                patch.setattr(Path, "mkdir", count(Path.mkdir))
                patch.setattr(partial.shutil, "rmtree", count(partial.shutil.rmtree))
                run(path, prefix=folder / "made", keys=keys, overwrite=True)
            break
        except _Crash:
            crashed += 1
        for key in keys:
            # What has an index is whole, the earlier one or the new one.
            if (folder / f"made_{key}_document.idx").exists():
                files = [(folder / f"made_{key}_document.{k}").read_bytes() for k in ("bin", "idx")]
                assert files == expected[key] or dataset(folder, f"made_{key}_document").num_documents == 1, (
                    number
                )
        run(path, prefix=folder / "made", keys=keys, overwrite=True)
        for key in keys:
            files = [(folder / f"made_{key}_document.{k}").read_bytes() for k in ("bin", "idx")]
            assert files == expected[key], number
        assert not partial_folder(folder / "made").exists()
    assert crashed > 30


def test_what_another_command_left_is_not_gone_on_with(
    tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": "a b"}])
    left = Partial(tmp_path / "made", ["made_text_document"], {"another": "plan"})
    left.commit()
    left.close()
    outcome = run(path)
    assert outcome.left_by_another
    assert not outcome.resumed
    assert dataset(tmp_path).num_documents == 1


def test_a_worker_that_grows_is_replaced_and_the_bytes_stay_the_same(
    tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2_000)
    rng = random.Random(6)
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": words(rng, 40)} for _ in range(20)])
    run(path)
    monkeypatch.setattr(pool, "RETIRE_BYTES", -1)
    outcome = run(path, prefix=tmp_path / "again")
    assert outcome.replaced_workers >= 2
    for kind in ("bin", "idx"):
        first = (tmp_path / f"made_text_document.{kind}").read_bytes()
        assert (tmp_path / f"again_text_document.{kind}").read_bytes() == first

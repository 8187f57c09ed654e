from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.corpus.datasets import rewrite
from mlm.corpus.datasets.merge import merge, split
from mlm.corpus.datasets.rewrite import Piece
from mlm.corpus.datasets.verify import verify
from mlm.data.indexed import IndexedDataset
from mlm.data.metadata import read_metadata, write_metadata
from mlm.data.tokenizers import ByteTokenizer, Gpt2Tokenizer
from mlm.errors import ConfigError, DataError
from tests.unit.data.index_by_hand import CODE_OF, pack_index, unpack_index


def write(prefix: Path, sequences: Sequence[Sequence[int]], dtype: str = "<u2", documents=None) -> Path:
    """A dataset packed by hand."""
    ids = np.array([i for each in sequences for i in each], dtype=dtype)
    prefix.with_name(prefix.name + ".bin").write_bytes(ids.tobytes())
    letter = {"u2": "H", "i4": "i", "u1": "B", "i8": "q"}[np.dtype(dtype).str.lstrip("<|")]
    index = pack_index(CODE_OF[letter], np.dtype(dtype).itemsize, [len(s) for s in sequences], documents)
    prefix.with_name(prefix.name + ".idx").write_bytes(index)
    return prefix


def record(prefix: Path, tokenizer=None, **changes) -> None:
    dataset, tokenizer = IndexedDataset(prefix), tokenizer or ByteTokenizer()
    values = {
        "tokenizer": tokenizer.describe(),
        "eod": tokenizer.eod,
        "documents": dataset.num_documents,
        "tokens": len(dataset.tokens),
        "dtype": dataset.dtype.name,
        "level": "document",
        "sources": [{"path": f"{prefix.name}.jsonl", "bytes": 10}],
        "skipped": {"empty": 1},
        "bytes_of_text": 100,
    }
    write_metadata(prefix, values | changes)


def documents(prefix: Path) -> list[list[int]]:
    dataset = IndexedDataset(prefix)
    return [dataset.document(d).tolist() for d in range(dataset.num_documents)]


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


DATASET = st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=6), min_size=1, max_size=8)


@given(st.lists(st.tuples(DATASET, st.sampled_from(["<u2", "<i4", "|u1", "<i8"])), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_document_k_of_the_whole_is_document_k_of_its_source_in_the_widest_type(tmp_path_factory, sets):
    folder = tmp_path_factory.mktemp("merge")
    inputs = [write(folder / f"in{i}", ids, dtype) for i, (ids, dtype) in enumerate(sets)]
    merge(folder / "out", inputs, overwrite=False)
    assert documents(folder / "out") == [ids for each, _ in sets for ids in each]
    _, lengths, pointers, index = unpack_index((folder / "out.idx").read_bytes())
    widest = max((np.dtype(d) for _, d in sets), key=lambda d: d.itemsize)
    assert IndexedDataset(folder / "out").dtype == widest
    assert (folder / "out.bin").stat().st_size == sum(lengths) * widest.itemsize
    assert pointers == [sum(lengths[:i]) * widest.itemsize for i in range(len(lengths))]
    assert index == list(range(len(lengths) + 1))
    assert verify(folder / "out").wrong == []


def test_sentences_stay_sentences_of_their_documents(tmp_path: Path):
    one = write(tmp_path / "a", [[1], [2, 2], [3]], documents=[0, 2, 3])
    two = write(tmp_path / "b", [[4], [5], [], [6]], documents=[0, 0, 3, 4])
    merge(tmp_path / "out", [one, two], overwrite=False)
    assert unpack_index((tmp_path / "out.idx").read_bytes())[3] == [0, 2, 3, 3, 6, 7]
    assert documents(tmp_path / "out") == [[1, 2, 2], [3], [], [4, 5], [6]]
    split(tmp_path / "out", [Fraction(2), Fraction(3)], [tmp_path / "x", tmp_path / "y"], overwrite=False)
    for suffix in (".bin", ".idx"):
        for part, source in (("x", "a"), ("y", "b")):
            ours, theirs = ((tmp_path / f"{name}{suffix}").read_bytes() for name in (part, source))
            assert ours == theirs


def test_steps_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    inputs = [
        write(tmp_path / f"in{i}", [rng.integers(0, 99, n).tolist() for n in rng.integers(1, 20, 40)])
        for i in range(3)
    ]
    merge(tmp_path / "whole", inputs, overwrite=False)
    monkeypatch.setattr(rewrite, "STEP", 7)
    monkeypatch.setattr(rewrite, "CHUNK", 3)
    merge(tmp_path / "stepped", inputs, overwrite=False)
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"whole{suffix}").read_bytes() == (tmp_path / f"stepped{suffix}").read_bytes()


def test_pointers_past_2_gib_are_sums_of_whole_numbers(tmp_path: Path):
    class Collected:
        raw = b""

        def write(self, raw: bytes) -> None:
            self.raw += raw

    lengths = [2**30] * 3 + [5]
    (tmp_path / "huge.idx").write_bytes(pack_index(8, 2, lengths))
    with open(tmp_path / "huge.bin", "wb") as file:
        file.truncate(2 * sum(lengths))  # sparse: takes no room
    dataset = IndexedDataset(tmp_path / "huge")
    index = Collected()
    rewrite._write_index(index, [Piece(dataset, 0, 4), Piece(dataset, 1, 3)], np.dtype("<i4"))  # type: ignore[arg-type]
    _, written, pointers, _ = unpack_index(index.raw)
    assert written == lengths + lengths[1:3]
    assert pointers == [4 * sum(written[:i]) for i in range(6)]


def test_the_record_of_the_whole_is_the_sum_of_the_records(tmp_path: Path):
    for name, ids in (("a", [[1, 256], [2, 256]]), ("b", [[3, 3, 256]])):
        record(write(tmp_path / name, ids))
    merge(tmp_path / "out", [tmp_path / "a", tmp_path / "b"], overwrite=False)
    whole = read_metadata(tmp_path / "out")
    assert whole is not None
    assert whole["tokenizer"] == ByteTokenizer().describe()
    assert {
        key: whole[key] for key in ("documents", "tokens", "dtype", "eod", "bytes_of_text", "skipped")
    } == {
        "documents": 3,
        "tokens": 7,
        "dtype": "uint16",
        "eod": 256,
        "bytes_of_text": 200,
        "skipped": {"empty": 2},
    }
    assert [source["path"] for source in whole["sources"]] == ["a.jsonl", "b.jsonl"]
    assert verify(tmp_path / "out").wrong == []
    assert "checksums as recorded" in verify(tmp_path / "out").facts


def test_a_whole_with_an_input_of_unknown_tokenizer_has_no_record_and_says_so(tmp_path: Path):
    record(write(tmp_path / "a", [[1, 256]]))
    write(tmp_path / "b", [[2]])
    said = merge(tmp_path / "out", [tmp_path / "a", tmp_path / "b"], overwrite=False)
    assert "of " + str(tmp_path / "b") in said[1]
    assert read_metadata(tmp_path / "out") is None


def test_what_does_not_mix_is_refused_all_at_once_and_nothing_is_written(tmp_path: Path):
    record(write(tmp_path / "a", [[1, 256]]))
    record(write(tmp_path / "b", [[1, 2]]), Gpt2Tokenizer())
    record(write(tmp_path / "c", [[1, 2]]), eod=None)
    record(write(tmp_path / "d", [[1, 256]]), level="sentence")
    before = there(tmp_path)
    inputs = [tmp_path / name for name in ("a", "b", "c", "d", "absent")]
    with pytest.raises(ConfigError) as error:
        merge(tmp_path / "out", inputs, overwrite=False)
    said = "\n".join(str(problem) for problem in error.value.problems)
    assert "b was encoded with gpt2, 50,257 tokens" in said
    assert "c ends its documents with nothing, and" in said
    assert "d is of sentences, and" in said
    assert "absent.idx cannot be read" in said
    with pytest.raises(ConfigError, match="is one of the inputs"):
        merge(tmp_path / "a", [tmp_path / "a", tmp_path / "a"], overwrite=True)
    assert there(tmp_path) == before


def test_an_existing_dataset_is_replaced_only_when_asked(tmp_path: Path):
    write(tmp_path / "a", [[1]])
    record(write(tmp_path / "out", [[9]]))
    with pytest.raises(ConfigError, match=r"exists \(out.bin, out.idx, out.json\)"):
        merge(tmp_path / "out", [tmp_path / "a"], overwrite=False)
    assert documents(tmp_path / "out") == [[9]]
    merge(tmp_path / "out", [tmp_path / "a"], overwrite=True)
    assert documents(tmp_path / "out") == [[1]]
    assert read_metadata(tmp_path / "out") is None, "a record of what was there before would lie"


@pytest.mark.parametrize("shares", [["0.9", "0.1"], ["1", "1", "1"], ["5", "3", "2"]])
def test_parts_are_runs_of_documents_that_give_the_whole_when_merged_again(tmp_path: Path, shares: list[str]):
    ids = [[d] * (1 + d % 5) for d in range(50)]
    record(write(tmp_path / "whole", ids), eod=None)
    outs = [tmp_path / f"part{i}" for i in range(len(shares))]
    split(tmp_path / "whole", [Fraction(share) for share in shares], outs, overwrite=False)
    total, so_far, ends = sum(map(float, shares)), 0.0, [0]
    for out, share in zip(outs, shares, strict=True):
        so_far += float(share)
        ends.append(round(so_far / total * 50))
        assert documents(out) == ids[ends[-2] : ends[-1]]
        part = read_metadata(out)
        assert part is not None
        assert part["documents"] == ends[-1] - ends[-2]
        assert part["part_of"] == {"path": str(tmp_path / "whole"), "documents": ends[-2:]}
        assert verify(out).wrong == []
    merge(tmp_path / "again", outs, overwrite=False)
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()


def test_a_part_without_documents_is_refused_with_the_numbers_and_no_part_is_written(tmp_path: Path):
    write(tmp_path / "whole", [[d] for d in range(10)])
    before = there(tmp_path)
    with pytest.raises(ConfigError, match=r"--parts 0.01 is 0 of 10 documents and holds no tokens"):
        split(
            tmp_path / "whole",
            [Fraction("0.99"), Fraction("0.01")],
            [tmp_path / "a", tmp_path / "b"],
            overwrite=False,
        )
    assert there(tmp_path) == before


def test_a_disk_that_fills_up_leaves_what_was_there_and_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "a", [[1] * 100])
    write(tmp_path / "out", [[9]])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"out cannot be written \(No space left on device\)"):
        merge(tmp_path / "out", [tmp_path / "a"], overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_two_merges_to_one_name_at_once_are_one_merge_and_one_refusal(tmp_path: Path):
    write(tmp_path / "a", [[1]])
    with open(tmp_path / ".out.partial.bin", "ab") as other:
        import fcntl

        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="is being written by another process"):
            merge(tmp_path / "out", [tmp_path / "a"], overwrite=False)
    merge(tmp_path / "out", [tmp_path / "a"], overwrite=False)
    assert there(tmp_path) == ["a.bin", "a.idx", "out.bin", "out.idx"]


def test_a_merge_that_is_killed_leaves_no_dataset_and_the_next_one_all_of_it(tmp_path: Path):
    rng = np.random.default_rng(0)
    write(tmp_path / "a", [rng.integers(0, 9, 2_000_000).tolist()], "<u2")
    merge(tmp_path / "undisturbed", [tmp_path / "a"] * 6, overwrite=False)
    code = (
        "from pathlib import Path; from mlm.corpus.datasets import rewrite; rewrite.STEP = 1 << 12;"
        "from mlm.corpus.datasets.merge import merge; import sys; print(flush=True);"
        "merge(Path('out'), [Path('a')] * 6, overwrite=False)"
    )
    killed = 0
    for wait_s in (0.0, 0.005, 0.02, 0.05):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(wait_s)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
        if (tmp_path / "out.idx").exists():
            break
    assert killed, "no kill came in time"
    merge(tmp_path / "out", [tmp_path / "a"] * 6, overwrite=(tmp_path / "out.bin").exists())
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"out{suffix}").read_bytes() == (tmp_path / f"undisturbed{suffix}").read_bytes()
    assert [name for name in there(tmp_path) if "partial" in name] == []

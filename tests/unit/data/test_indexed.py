from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.data import indexed
from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.errors import DataError
from tests.unit.data.index_by_hand import CODE_OF, pack_index, unpack_index

SEQUENCES = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("letter", ["B", "b", "h", "i", "q", "H"])
def test_files_packed_by_hand_are_read_right(write_by_hand: Callable[..., Path], letter: str):
    dataset = IndexedDataset(write_by_hand(SEQUENCES, letter))
    assert dataset.dtype.itemsize == struct.calcsize("<" + letter)
    assert [dataset.sequence(i).tolist() for i in range(len(dataset))] == SEQUENCES
    assert [dataset.document(i).tolist() for i in range(dataset.num_documents)] == SEQUENCES
    assert dataset.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    dataset.verify()


def test_documents_are_runs_of_sequences_and_empty_ones_are_allowed(write_by_hand: Callable[..., Path]):
    dataset = IndexedDataset(write_by_hand([[1, 2], [], [3], [4, 5, 6]], documents=[0, 2, 2, 4, 4]))
    assert len(dataset) == 4
    assert [dataset.document(i).tolist() for i in range(dataset.num_documents)] == [
        [1, 2],
        [],
        [3, 4, 5, 6],
        [],
    ]
    assert [dataset.document_start(i) for i in range(5)] == [0, 2, 2, 6, 6]
    dataset.verify()


@given(st.lists(st.lists(st.integers(0, 65_498), min_size=1, max_size=9), min_size=1, max_size=9))
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_parsed_by_hand_and_read_back(tmp_path_factory, documents: list[list[int]]):
    prefix = tmp_path_factory.mktemp("written") / "data"
    with IndexedWriter(prefix, vocab_size=65_499) as writer:
        for ids in documents:
            writer.add_document(ids)
    code, lengths, pointers, index = unpack_index(prefix.with_name("data.idx").read_bytes())
    raw = prefix.with_name("data.bin").read_bytes()
    assert (code, index) == (8, list(range(len(documents) + 1)))
    assert lengths == [len(ids) for ids in documents]
    assert len(raw) == 2 * sum(lengths)
    for pointer, ids in zip(pointers, documents, strict=True):
        assert list(struct.unpack_from(f"<{len(ids)}H", raw, pointer)) == ids
    dataset = IndexedDataset(prefix)
    dataset.verify()
    assert [dataset.document(i).tolist() for i in range(dataset.num_documents)] == documents


@pytest.mark.parametrize(("vocab_size", "code"), [(2, 8), (65_499, 8), (65_500, 4), (119_547, 4)])
def test_ids_are_uint16_below_65500_and_int32_from_there(tmp_path: Path, vocab_size: int, code: int):
    with IndexedWriter(tmp_path / "data", vocab_size) as writer:
        writer.add_document([0, vocab_size - 1])
    assert unpack_index((tmp_path / "data.idx").read_bytes())[0] == code
    assert IndexedDataset(tmp_path / "data").tokens.tolist() == [0, vocab_size - 1]


@pytest.mark.parametrize(("vocab_size", "bad"), [(50_257, 70_000), (50_257, 50_257), (100_000, -1)])
def test_an_id_outside_the_vocabulary_is_refused_and_leaves_no_file(
    tmp_path: Path, vocab_size: int, bad: int
):
    def write() -> None:
        with IndexedWriter(tmp_path / "data", vocab_size) as writer:
            writer.add_document([1, 2])
            writer.add_document(np.array([3, bad]))

    with pytest.raises(DataError, match=f"document 1 of .* has token id {bad:,}"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_nothing_written_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match="no tokens"), IndexedWriter(tmp_path / "data", 10):
        pass
    with (
        pytest.raises(DataError, match=r"document 0 .* has 0 tokens"),
        IndexedWriter(tmp_path / "data", 10) as writer,
    ):
        writer.add_document([])
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_former_dataset(tmp_path: Path):
    with IndexedWriter(tmp_path / "data", 10) as writer:
        writer.add_document([1, 2, 3])

    def interrupted() -> None:
        with IndexedWriter(tmp_path / "data", 10) as writer:
            writer.add_document([9])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert IndexedDataset(tmp_path / "data").tokens.tolist() == [1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.bin", "data.idx"]


def test_pointers_past_2_gib_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lengths = [2**30] * 3 + [5]
    sizes = np.array(lengths, dtype=np.int64)
    with IndexedWriter(tmp_path / "data", 10) as writer:
        writer.add_document([1])
        writer._lengths = indexed.array("q", lengths)
        writer._documents = indexed.array("q", range(len(lengths) + 1))
    _, written, pointers, _ = unpack_index((tmp_path / "data.idx").read_bytes())
    assert written == lengths
    assert pointers == [sum(lengths[:i]) * 2 for i in range(4)]
    with open(tmp_path / "data.bin", "r+b") as file:
        file.truncate(int(sizes.sum()) * 2)  # sparse: takes no room
        file.seek((3 * 2**30 + 4) * 2)
        file.write(struct.pack("<H", 7))
    dataset = IndexedDataset(tmp_path / "data")
    dataset.verify()
    assert dataset.document_start(3) == 3 * 2**30
    assert dataset.document(3).tolist() == [0, 0, 0, 0, 7]


def test_a_truncated_bin_is_refused_at_opening_with_both_sizes(write_by_hand: Callable[..., Path]):
    prefix = write_by_hand([[1] * 1000])
    with open(prefix.with_name("made.bin"), "r+b") as file:
        file.truncate(976)
    with pytest.raises(DataError, match=r"made\.bin is 976 bytes, but made\.idx describes 2,000"):
        IndexedDataset(prefix)


def test_the_index_of_another_bin_is_refused(write_by_hand: Callable[..., Path]):
    prefix, other = write_by_hand(SEQUENCES), write_by_hand(SEQUENCES[:2], name="other")
    other.with_name("other.idx").rename(prefix.with_name("made.idx"))
    with pytest.raises(DataError, match=r"is 18 bytes, but made\.idx describes 8 bytes"):
        IndexedDataset(prefix)


GOOD = pack_index(8, 2, [3, 1, 5])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"just some text, not an index\n" * 3, r"begins with b'just some'"),
        (b"", "begins with b''"),
        (GOOD[:20], "is 20 bytes, but its header alone takes 34"),
        (GOOD[:-8], f"is {len(GOOD) - 8} bytes, but 3 sequences and 3 documents take {len(GOOD)}"),
        (GOOD + b"\0", f"is {len(GOOD) + 1} bytes"),
        (pack_index(8, 2, [9], magic=b"TNTIDX\x00\x00\x00"), "begins with b'TNTIDX"),
        (pack_index(8, 2, [9], version=2), "is of version 2, not 1"),
        (pack_index(9, 2, [9]), "has the dtype code 9"),
        (pack_index(0, 2, [9]), "has the dtype code 0"),
        (pack_index(CODE_OF["f"], 4, [9]), "holds float32 numbers"),
        (pack_index(8, 2, []), "holds no documents"),
        (pack_index(8, 2, [3, 1, 5], documents=[0, 1, 2]), "do not cover its 3 sequences"),
        (pack_index(8, 2, [3, 1, 5], documents=[1, 2, 3]), "do not cover its 3 sequences"),
    ],
)
def test_an_index_that_is_not_right_is_refused_by_name(
    write_by_hand: Callable[..., Path], raw: bytes, message: str
):
    prefix = write_by_hand(SEQUENCES)
    prefix.with_name("made.idx").write_bytes(raw)
    with pytest.raises(DataError, match=message) as error:
        IndexedDataset(prefix)
    assert "made.idx" in str(error.value)


def test_missing_and_empty_files_are_refused(write_by_hand: Callable[..., Path], tmp_path: Path):
    with pytest.raises(DataError, match=r"absent\.idx cannot be read"):
        IndexedDataset(tmp_path / "absent")
    with pytest.raises(DataError, match="holds no tokens"):
        IndexedDataset(write_by_hand([[], []]))


def test_verifying_finds_a_pointer_or_a_document_out_of_place(
    write_by_hand: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(indexed, "CHUNK", 2)  # so that the error lies in a later chunk
    prefix = write_by_hand(SEQUENCES)
    prefix.with_name("made.idx").write_bytes(pack_index(8, 2, [3, 1, 1, 4], pointers=[0, 6, 6, 10]))
    with pytest.raises(DataError, match=r"places sequence 2 at byte 6, but .* end at byte 8"):
        IndexedDataset(prefix).verify()
    prefix.with_name("made.idx").write_bytes(pack_index(8, 2, [3, 1, 1, 4], documents=[0, 2, 3, 1, 4]))
    with pytest.raises(DataError, match="ends document 2 before its start"):
        IndexedDataset(prefix).verify()


def test_opening_a_huge_index_reads_only_its_ends(tmp_path: Path):
    n = 200_000_000  # an index of 4 GB, sparse: reading it all would take seconds
    with open(tmp_path / "huge.idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, n, n + 1))
        file.seek(34 + 20 * n)
        file.write(struct.pack("<q", n))
        file.seek(34 + 4 * (n - 1))
        file.write(struct.pack("<i", 4))
    (tmp_path / "huge.bin").write_bytes(struct.pack("<4H", 1, 2, 3, 4))
    dataset = IndexedDataset(tmp_path / "huge")
    assert (len(dataset), dataset.num_documents, dataset.tokens.tolist()) == (n, n, [1, 2, 3, 4])
    assert dataset.document_start(n - 1) == 0

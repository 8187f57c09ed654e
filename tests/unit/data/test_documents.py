from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.data import documents
from mlm.data.documents import DocumentStream
from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.data.samples import DocumentWindows, TokenWindows, ValidationWindows
from tests.unit.data.index_by_hand import pack_index
from tests.unit.data.streams import starts_of, tokens_of


def dataset_of(folder: Path, lengths: list[int]) -> IndexedDataset:
    """Document d holds the ids 1000 * d, 1000 * d + 1, ...: each token tells where it is from."""
    with IndexedWriter(folder / "data", vocab_size=10**8) as writer:
        for d, length in enumerate(lengths):
            writer.add_document(1000 * d + np.arange(length))
    return IndexedDataset(folder / "data")


def order_of(stream: DocumentStream, epoch: int) -> list[int]:
    """The order of an epoch, found by reading the whole stream as one request."""
    runs = stream.runs(epoch, np.array([0]), stream.tokens)
    ids = tokens_of(runs, stream.dataset.tokens, 1, stream.tokens)[0]
    return [int(i) // 1000 for i in ids if i % 1000 == 0]


LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60)


@given(LENGTHS, st.integers(0, 5), st.booleans(), st.data())
@settings(max_examples=80, deadline=None)
def test_a_stream_is_its_documents_laid_end_to_end(
    tmp_path_factory, lengths: list[int], epoch: int, shuffle: bool, data: st.DataObject
):
    dataset = dataset_of(tmp_path_factory.mktemp("d"), lengths)
    first = data.draw(st.integers(0, len(lengths) - 1))
    stop = data.draw(st.integers(first + 1, len(lengths)))
    stream = DocumentStream(dataset, first, stop, seed=3, shuffle=shuffle)
    order = order_of(stream, epoch)
    assert sorted(order) == list(range(first, stop))
    if not shuffle:
        assert order == list(range(first, stop))
    laid = [(d, 1000 * d + i) for d in order for i in range(lengths[d])]
    assert stream.tokens == len(laid)

    length = data.draw(st.integers(1, len(laid)))
    starts = data.draw(st.lists(st.integers(0, len(laid) - length), min_size=1, max_size=5))
    runs = stream.runs(epoch, np.array(starts), length)
    ids = tokens_of(runs, dataset.tokens, len(starts), length)
    begun = starts_of(runs, len(starts), length)
    for row, start in enumerate(starts):
        window = laid[start : start + length]
        assert ids[row].tolist() == [token for _, token in window]
        # By looking at each token: where its document's first token is, or 0 when that is further back.
        expected = [max(0, i - (token - 1000 * d)) for i, (d, token) in enumerate(window)]
        assert begun[row].tolist() == expected


def test_every_epoch_has_an_order_of_its_own_that_a_seed_decides(tmp_path: Path):
    dataset = dataset_of(tmp_path, [3] * 500)
    orders = [
        order_of(DocumentStream(dataset, 0, 500, seed, shuffle=True), epoch)
        for seed, epoch in ((1, 0), (1, 1), (2, 0))
    ]
    for i, one in enumerate(orders):
        for other in [list(range(500)), *orders[:i]]:
            assert sum(a == b for a, b in zip(one, other, strict=True)) < 10
    again = DocumentStream(dataset, 0, 500, 1, shuffle=True)
    assert [order_of(again, epoch) for epoch in (1, 0)] == [orders[1], orders[0]]


def test_documents_without_tokens_and_of_several_sequences_are_passed_over_and_kept_whole(
    write_by_hand: Callable[..., Path],
):
    prefix = write_by_hand([[1, 2], [], [3], [4, 5, 6], [7]], documents=[0, 0, 2, 2, 4, 4, 5, 5])
    stream = DocumentStream(IndexedDataset(prefix), 0, 7, seed=5, shuffle=True)
    assert stream.tokens == 7
    seen = set()
    for epoch in range(40):
        runs = stream.runs(epoch, np.array([0]), 7)
        seen.add(tuple(tokens_of(runs, stream.dataset.tokens, 1, 7)[0].tolist()))
    whole = [[1, 2], [3, 4, 5, 6], [7]]
    assert seen == {(*a, *b, *c) for a, b, c in permutations(whole)}


def test_groups_and_chunks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    dataset = dataset_of(tmp_path, np.random.default_rng(0).integers(1, 40, 333).tolist())
    starts = np.array([0, 17, 1000, 3000])
    found = []
    for group, chunk in ((8, 1 << 14), (1, 1), (4, 8), (64, 128), (512, 512)):
        monkeypatch.setattr(documents, "GROUP", group)
        monkeypatch.setattr(documents, "CHUNK", chunk)
        runs = DocumentStream(dataset, 0, 333, 7, shuffle=True).runs(2, starts, 65)
        found.append(tokens_of(runs, dataset.tokens, 4, 65).tolist())
    assert all(each == found[0] for each in found)


def test_only_the_epochs_in_use_are_kept_and_dropped_ones_come_back_equal(tmp_path: Path):
    stream = DocumentStream(dataset_of(tmp_path, [5] * 100), 0, 100, 1, shuffle=True)
    first = stream.group_starts(0).tolist()
    for epoch in range(6):
        stream.group_starts(epoch)
    assert len(stream._group_starts) <= documents.EPOCHS_KEPT
    assert stream.group_starts(0).tolist() == first


@given(LENGTHS, st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_an_epoch_of_samples_has_every_target_at_most_once_and_leaves_out_few(
    tmp_path_factory, lengths: list[int], seq_length: int
):
    if sum(lengths) < seq_length + 1:
        return
    dataset = dataset_of(tmp_path_factory.mktemp("d"), lengths)
    stream = DocumentStream(dataset, 0, len(lengths), 9, shuffle=True)
    windows = DocumentWindows(stream, seq_length, seed=9)
    n = windows.samples_per_epoch
    for epoch in (0, 3):
        batch = windows.batch(np.arange(n) + epoch * n)
        targets = batch[:, 1:].ravel().tolist()
        assert len(set(targets)) == len(targets)
        assert sum(lengths) - len(targets) <= 2 * seq_length


def test_a_batch_over_the_border_of_epochs_is_its_samples_one_by_one(tmp_path: Path):
    dataset = dataset_of(tmp_path, [7, 30, 2, 19, 11, 5, 44])
    windows = DocumentWindows(DocumentStream(dataset, 0, 7, 1, shuffle=True), 8, seed=1)
    numbers = np.arange(5 * windows.samples_per_epoch)[::-1]
    ids, starts = windows.packed(numbers)
    assert ids.dtype == starts.dtype == np.int64
    for row, number in enumerate(numbers.tolist()):
        one, its = windows.packed([number])
        assert ids[row].tolist() == one[0].tolist() == windows.batch([number])[0].tolist()
        assert starts[row].tolist() == its[0].tolist()


def test_documents_in_the_files_order_give_the_windows_of_the_plain_stream(tmp_path: Path):
    dataset = dataset_of(tmp_path, np.random.default_rng(1).integers(1, 50, 90).tolist())
    start, stop = dataset.document_start(10), dataset.document_start(80)
    plain = TokenWindows(dataset.tokens, start, stop, 16, seed=4)
    packed = DocumentWindows(DocumentStream(dataset, 10, 80, 4, shuffle=False), 16, seed=4)
    numbers = np.arange(3 * plain.samples_per_epoch)
    assert packed.samples_per_epoch == plain.samples_per_epoch
    assert packed.batch(numbers).tolist() == plain.batch(numbers).tolist()
    assert plain.packed(numbers)[1].tolist() == np.zeros((len(numbers), 16), dtype=int).tolist()


def test_validation_windows_know_where_documents_begin_to_the_last_token(tmp_path: Path):
    lengths = [7, 30, 2, 19, 11, 5]
    dataset = dataset_of(tmp_path, lengths)
    start, stop = dataset.document_start(1), dataset.document_start(6)
    stream = DocumentStream(dataset, 1, 6, 0, shuffle=False)
    windows = ValidationWindows(dataset.tokens, start, stop, 8, stream)
    ids, mask = windows.batch(range(len(windows) + 2))
    starts = windows.document_starts(range(len(windows) + 2))
    assert starts.shape == mask.shape
    for row in range(len(windows)):
        for i in np.flatnonzero(mask[row]):
            within = int(ids[row, i]) % 1000
            assert starts[row, i] == max(0, i - within), (row, i)
    assert not starts[len(windows) :].any()


def test_a_million_documents_are_ordered_in_little_memory(tmp_path: Path):
    lengths = np.random.default_rng(0).geometric(1 / 1000, 1_000_000)
    (tmp_path / "big.idx").write_bytes(_index_of(lengths))
    with open(tmp_path / "big.bin", "wb") as file:
        file.truncate(2 * int(lengths.sum()))
    assert _index_of(np.array([3, 1])) == pack_index(8, 2, [3, 1])
    dataset = IndexedDataset(tmp_path / "big")
    stream = DocumentStream(dataset, 0, len(lengths), 1, shuffle=True)
    tracemalloc.start()
    ends = stream.group_starts(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert int(ends[-1]) == int(lengths.sum())
    assert peak < 10_000_000


def _index_of(lengths: np.ndarray) -> bytes:
    sizes = lengths.astype(np.int64) * 2
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
    arrays = lengths.astype("<i4"), np.cumsum(sizes) - sizes, np.arange(len(lengths) + 1, dtype="<i8")
    return head + b"".join(array.tobytes() for array in arrays)

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlm.data.blend import Blend
from mlm.data.documents import DocumentStream
from mlm.data.indexed import IndexedDataset
from mlm.data.samples import (
    BlendedWindows,
    TokenWindows,
    ValidationWindows,
    samples_per_epoch,
    validation_samples,
)
from mlm.errors import DataError
from tests.unit.data.index_by_hand import pack_index
from tests.unit.data.streams import starts_of, tokens_of

# In these tests token i is the number i, so that a sample shows where it was cut.


@given(tokens=st.integers(2, 400), seq_length=st.integers(1, 50), seed=st.integers(0, 99))
@example(tokens=9, seq_length=8, seed=0)
@example(tokens=16, seq_length=8, seed=0)
@example(tokens=17, seq_length=8, seed=0)
@settings(max_examples=150, deadline=None)
def test_samples_are_whole_windows_and_an_epoch_repeats_no_target(tokens: int, seq_length: int, seed: int):
    if tokens <= seq_length:
        return
    start = 5
    stream = np.arange(start + tokens + 7, dtype=np.uint16)
    windows = TokenWindows(stream, start, start + tokens, seq_length, seed)
    n = windows.samples_per_epoch
    assert n == samples_per_epoch(tokens, seq_length) >= 1
    for epoch in (0, 1, 5):
        batch = windows.batch(np.arange(n) + epoch * n)
        assert batch.shape == (n, seq_length + 1)
        assert (np.diff(batch, axis=1) == 1).all()
        assert batch.min() >= start
        assert batch.max() < start + tokens
        targets = batch[:, 1:].ravel()
        assert len(set(targets.tolist())) == len(targets)
        assert tokens - len(targets) <= 2 * seq_length


def test_epochs_cut_the_text_at_different_places():
    windows = TokenWindows(np.arange(1000), 0, 1000, 64, seed=1)
    n = windows.samples_per_epoch
    phases = {int(windows.batch([epoch * n])[0, 0]) % 64 for epoch in range(30)}
    assert len(phases) > 15


def test_every_position_of_the_text_is_reached():
    windows = TokenWindows(np.arange(300), 0, 300, 32, seed=3)
    seen = windows.batch(np.arange(windows.samples_per_epoch * 200))
    assert set(seen.ravel().tolist()) == set(range(300))


def test_a_batch_is_its_samples_in_the_order_asked():
    windows = TokenWindows(np.arange(5000), 0, 5000, 16, seed=9)
    numbers = [77, 3, 10_000, 3]
    batch = windows.batch(numbers)
    assert batch.dtype == np.int64
    for row, number in zip(batch, numbers, strict=True):
        assert row.tolist() == windows.batch([number])[0].tolist()
    assert windows.batch(np.array([], dtype=np.int64)).shape == (0, 17)


def test_windows_past_2_to_the_31_tokens_are_cut_right(tmp_path: Path):
    tokens, seq_length = 2_200_000_000, 64
    (tmp_path / "sparse.idx").write_bytes(pack_index(8, 2, [2**30, 2**30, tokens - 2**31]))
    with open(tmp_path / "sparse.bin", "wb") as file:
        file.truncate(2 * tokens)
        file.seek(2 * (tokens - 100))
        file.write(struct.pack("<100H", *range(1, 101)))
    stream = IndexedDataset(tmp_path / "sparse").tokens
    windows = TokenWindows(stream, 0, tokens, seq_length, seed=0)
    _, window, _ = windows.order.locate(np.arange(20_000))
    assert int((window * seq_length).max()) > 2**31
    assert windows.batch(np.arange(8) + 10**12).shape == (8, seq_length + 1)

    valid = ValidationWindows(stream, 0, tokens, seq_length)
    batch, mask = valid.batch([len(valid) - 1])
    scored = (tokens - 1) - (len(valid) - 1) * seq_length
    assert mask.sum() == scored
    assert batch[0, 1 : scored + 1].tolist() == list(range(101 - scored, 101))


@given(tokens=st.integers(2, 300), seq_length=st.integers(1, 40), size=st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_validation_scores_every_token_but_the_first_exactly_once(tokens: int, seq_length: int, size: int):
    if tokens <= seq_length:
        return
    start = 11
    stream = np.arange(start + tokens + 100)
    windows = ValidationWindows(stream, start, start + tokens, seq_length)
    assert len(windows) == validation_samples(tokens, seq_length)
    scored: list[int] = []
    for first in range(0, len(windows), size):  # the last batch goes past the end
        batch, mask = windows.batch(np.arange(first, first + size))
        assert batch.shape == (size, seq_length + 1)
        assert mask.shape == (size, seq_length)
        assert batch.max() < start + tokens
        inputs, targets = batch[:, :-1], batch[:, 1:]
        assert (targets[mask] == inputs[mask] + 1).all()
        scored += targets[mask].tolist()
    assert scored == list(range(start + 1, start + tokens))


@pytest.mark.parametrize("kind", [TokenWindows, ValidationWindows])
def test_a_range_shorter_than_one_sample_is_refused(kind: Callable[..., object]):
    extra = (0,) if kind is TokenWindows else ()
    with pytest.raises(DataError, match=r"40 tokens is shorter than one sample, seq_length .* 65"):
        kind(np.arange(100), 10, 50, 64, *extra)
    kind(np.arange(100), 10, 75, 64, *extra)


def test_blended_windows_are_each_datasets_own_samples_in_turn():
    streams = [np.arange(5000), np.arange(100_000, 103_000), np.arange(1)]
    blend = Blend([0.25, 0.75, 0.0])
    datasets = [TokenWindows(streams[0], 0, 5000, 16, seed=1), TokenWindows(streams[1], 0, 3000, 16, seed=2)]
    samples = BlendedWindows(blend, [*datasets, None])
    numbers = np.arange(400)[::-1]
    ids, starts = samples.packed(numbers)
    drawn, inner = blend.locate(numbers)
    assert set(drawn.tolist()) == {0, 1}
    for row, (dataset, number) in enumerate(zip(drawn.tolist(), inner.tolist(), strict=True)):
        assert ids[row].tolist() == datasets[dataset].batch([number])[0].tolist()
    assert samples.batch(numbers).tolist() == ids.tolist()
    assert starts.shape == (400, 16)


def test_the_last_tokens_of_2_2_billion_are_found_in_documents_of_a_billion(tmp_path: Path):
    lengths = [2**30, 2**30, 2_200_000_000 - 2**31]
    (tmp_path / "sparse.idx").write_bytes(pack_index(8, 2, lengths))
    with open(tmp_path / "sparse.bin", "wb") as file:
        file.truncate(2 * sum(lengths))
        for end in (2**30, 2**31, sum(lengths)):
            file.seek(2 * (end - 65))
            file.write(struct.pack("<65H", *range(1, 66)))
    dataset = IndexedDataset(tmp_path / "sparse")
    stream = DocumentStream(dataset, 0, 3, seed=0, shuffle=False)
    ends = np.array([2**30, 2**31, sum(lengths)])
    runs = stream.runs(0, ends - 65, 65)
    assert (runs.start == ends - 65).all()
    assert tokens_of(runs, dataset.tokens, 3, 65).tolist() == [list(range(1, 66))] * 3
    assert starts_of(runs, 3, 65).tolist() == [[0] * 65] * 3
    # Over the border of the second document, past 2^31 tokens and 2^32 bytes.
    runs = stream.runs(0, ends[1:2] - 30, 65)
    assert tokens_of(runs, dataset.tokens, 1, 65)[0, :30].tolist() == list(range(36, 66))
    assert starts_of(runs, 1, 65)[0].tolist() == [0] * 30 + [30] * 35


def test_three_documents_of_2_to_the_30_tokens_in_any_order_are_cut_at_their_ends(tmp_path: Path):
    (tmp_path / "sparse.idx").write_bytes(pack_index(8, 2, [2**30] * 3))
    with open(tmp_path / "sparse.bin", "wb") as file:
        file.truncate(6 * 2**30)
        for document in range(3):
            file.seek(2 * document * 2**30)
            file.write(struct.pack("<H", document + 1))
    dataset = IndexedDataset(tmp_path / "sparse")
    stream = DocumentStream(dataset, 0, 3, seed=0, shuffle=True)
    seen = set()
    for epoch in range(12):
        assert stream.group_starts(epoch).tolist() == [0, 3 * 2**30]
        runs = stream.runs(epoch, np.array([0, 2**30, 2**31]), 5)
        first = tokens_of(runs, dataset.tokens, 3, 5)[:, 0].tolist()
        assert sorted(first) == [1, 2, 3]
        assert (runs.start >= 0).all()
        seen.add(tuple(first))
    assert len(seen) > 3

"""Chunks: vectorised packing is the packing that a reader of the rule would do by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlm.data.masked_lm import chunks as module
from mlm.data.masked_lm.chunks import ChunkCounts, build_chunks
from mlm.errors import DataError
from tests.unit.data.masked_lm.sentences import dataset


def by_hand(documents: list[list[int]], budget: int) -> list[tuple[int, int]]:
    """(first sentence, sentences), document by document and sentence by sentence."""
    found, before = [], 0
    for lengths in documents:
        packed: list[list[int]] = []
        for number, tokens in enumerate(lengths):
            held = packed[-1] if packed else []
            if held and (len(held) < 2 or sum(lengths[i] for i in held) + tokens <= budget):
                held.append(number)
            else:
                packed.append([number])
        if len(packed[-1]) == 1:
            if len(packed) == 1:
                before += 1
                continue
            last = packed[-2][-1]
            packed[-1].insert(0, last)
            if len(packed[-2]) > 2:
                packed[-2].pop()
        found += [(before + held[0], len(held)) for held in packed]
        before += len(lengths)
    return found


@pytest.mark.parametrize("budget", [2, 13, 61, 1000])
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_chunks_are_those_packed_by_hand(tmp_path, monkeypatch, budget: int, block: int):
    monkeypatch.setattr(module, "BLOCK", block)
    rng = np.random.default_rng(1)
    documents = [rng.integers(1, 25, rng.integers(1, 12)).tolist() for _ in range(150)]
    data = dataset(tmp_path, documents)
    chunks, counts = build_chunks(data, data.document_index, budget)
    expected = by_hand(documents, budget)
    assert [tuple(chunk) for chunk in chunks.tolist()] == expected
    lengths = data.lengths
    assert counts == ChunkCounts(
        documents=150,
        single=sum(len(d) == 1 for d in documents),
        chunks=len(expected),
        cut=sum(int(lengths[first : first + n].sum()) > budget for first, n in expected),
        tokens=sum(sum(d) for d in documents if len(d) > 1),
    )


def test_every_sentence_of_a_document_of_two_or_more_is_in_a_chunk_and_few_in_two(tmp_path: Path):
    rng = np.random.default_rng(2)
    documents = [rng.integers(1, 25, rng.integers(1, 12)).tolist() for _ in range(300)]
    data = dataset(tmp_path, documents)
    chunks, _ = build_chunks(data, data.document_index, 40)
    times = np.zeros(len(data), dtype=int)
    for first, sentences in chunks.tolist():
        times[first : first + sentences] += 1
    single = np.repeat([len(d) == 1 for d in documents], [len(d) for d in documents])
    assert (times[single] == 0).all()
    assert set(times[~single].tolist()) == {1, 2}
    # Twice only where a pair filled a chunk and one sentence was left behind it.
    assert (times == 2).sum() < 0.05 * len(times)


def test_a_part_of_a_dataset_and_documents_without_sentences(tmp_path: Path):
    data = dataset(tmp_path, [[3], [4, 5, 6], [7, 8], [9]])
    chunks, counts = build_chunks(data, np.array([1, 4, 4, 6]), 100)
    assert chunks.tolist() == [[1, 3], [4, 2]]
    assert (counts.documents, counts.single, counts.tokens) == (2, 0, 30)
    nothing, counts = build_chunks(data, np.array([6, 6]), 100)
    assert nothing.shape == (0, 2)
    assert counts == ChunkCounts(0, 0, 0, 0, 0)


def test_an_empty_sentence_is_named(tmp_path: Path):
    data = dataset(tmp_path, [[3, 1, 4], [5, 9]])
    data.pointers = data.pointers.copy()
    data.pointers[2] = data.pointers[1]
    with pytest.raises(DataError, match=r"has no token in sequence 1, .*prepare it again without empty"):
        build_chunks(data, data.document_index, 100)

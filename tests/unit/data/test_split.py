from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.data.indexed import IndexedDataset
from mlm.data.split import NAMES, cut, parts_problem, split_dataset, split_problem


@pytest.mark.parametrize(
    ("split", "quoted"),
    [
        ([-1, 1, 0], "contains -1"),
        ([90, math.nan, 5], "contains nan"),
        ([math.inf, 1, 1], "contains inf"),
        ([0, 0, 0], "gives the training split nothing"),
        ([0, 1], "gives the training split nothing"),
        ([], "has 0 numbers"),
        ([34, 33, 33, 10], "has 4 numbers"),
    ],
)
def test_a_split_that_means_nothing_is_refused_quoting_it(split: list[float], quoted: str):
    problem = split_problem(split)
    assert problem is not None
    assert problem.where.startswith("data.split=[")
    assert quoted in problem.wrong


@pytest.mark.parametrize("split", [[50], [969, 30, 1], [0.9, 0.1], [1, 0, 0], [90, 10, 0]])
def test_ordinary_splits_are_accepted(split: list[float]):
    assert split_problem(split) is None


def test_the_embedded_text_is_cut_where_nanogpt_cuts_it(shakespeare: str):
    total = len(shakespeare)
    for split in ([90, 10, 0], [0.9, 0.1], [9, 1]):
        train, valid, test = cut(total, split)
        assert train == int(0.9 * total) == 1_003_854
        assert (valid - train, test - valid) == (111_540, 0)


@given(st.integers(0, 2**45), st.lists(st.integers(0, 1000), min_size=1, max_size=3))
def test_cuts_are_ordered_exact_and_end_at_the_total(total: int, split: list[int]):
    if not sum(split):
        return
    ends = cut(total, split)
    assert len(ends) == 3
    assert ends == sorted(ends)
    assert ends[-1] == total
    assert ends[0] == total * split[0] // sum(split)


def test_decimal_shares_cut_like_whole_ones():
    for total in range(1, 400):
        assert cut(total, [0.7, 0.2, 0.1]) == cut(total, [7, 2, 1])


def test_documents_go_whole_to_the_nearest_split(write_by_hand: Callable[..., Path]):
    sequences = [[i] * (i + 1) for i in range(100)]
    parts = split_dataset(IndexedDataset(write_by_hand(sequences)), [969, 30, 1])
    assert [(part.name, part.documents) for part in parts] == [("train", 97), ("valid", 3), ("test", 0)]
    assert parts[0].stop == parts[1].start == sum(len(s) for s in sequences[:97])
    assert parts[-1].stop == sum(map(len, sequences))


def test_a_single_document_is_cut_by_tokens(write_by_hand: Callable[..., Path]):
    dataset = IndexedDataset(write_by_hand([range(10)]))
    parts = split_dataset(dataset, [70, 30])
    assert [(part.start, part.stop, part.documents) for part in parts] == [(0, 7, 1), (7, 10, 1), (10, 10, 0)]


def test_a_validation_split_rounded_to_nothing_is_named_with_a_split_that_works(
    write_by_hand: Callable[..., Path],
):
    dataset = IndexedDataset(write_by_hand([[1] * 40] * 10))
    split = [969, 30, 1]
    parts = split_dataset(dataset, split)
    assert [part.documents for part in parts] == [10, 0, 0]
    problem = parts_problem(parts, split, 64, dataset)
    assert problem is not None
    assert "leaves 0 documents, 0 tokens, to valid" in problem.wrong
    assert "data.split=[8,2,0]" in problem.remedy  # one document of 40 tokens is shorter than 65
    assert parts_problem(split_dataset(dataset, [8, 2, 0]), [8, 2, 0], 64, dataset) is None


def test_a_split_shorter_than_one_sample_is_named_with_the_greatest_seq_length(
    write_by_hand: Callable[..., Path],
):
    dataset = IndexedDataset(write_by_hand([range(40)]))
    split = [1.0]
    problem = parts_problem(split_dataset(dataset, split), split, 64, dataset)
    assert problem is not None
    assert "leaves 1 documents, 40 tokens, to train, and one sample takes 65" in problem.wrong
    assert "model.seq_length=39" in problem.remedy
    assert parts_problem(split_dataset(dataset, split), split, 39, dataset) is None


def test_validation_may_be_empty_only_when_its_share_is_zero(write_by_hand: Callable[..., Path]):
    dataset = IndexedDataset(write_by_hand([[1] * 40] * 10))
    for split in ([1], [1, 0], [1, 0, 0], [9, 0, 1]):
        assert parts_problem(split_dataset(dataset, split), split, 8) is None
    assert parts_problem(split_dataset(dataset, [1000, 1]), [1000, 1], 8) is not None


def test_there_are_three_splits_and_they_have_names():
    assert NAMES == ("train", "valid", "test")

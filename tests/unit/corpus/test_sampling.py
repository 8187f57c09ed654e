from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.corpus.tokenizing.sampling import STRETCH_CHARACTERS, Sample, stretches


@given(st.lists(st.sampled_from(["\n", "word ", "x" * 700, "長い行" * 300]), max_size=30).map("".join))
def test_stretches_join_to_the_text_and_none_is_longer_than_allowed(text: str):
    parts = list(stretches(text))
    assert "".join(parts) == text
    assert all(0 < len(part) <= STRETCH_CHARACTERS for part in parts)


def test_a_stretch_ends_at_a_line_end_where_there_is_one():
    line = "a" * 1500 + "\n"
    assert list(stretches(line * 3)) == [line] * 3
    assert [len(part) for part in stretches("b" * 4500)] == [2000, 2000, 500]


def test_a_text_within_the_limit_is_the_sample():
    sample, texts = Sample(100_000), [f"text {number}\n" * 20 for number in range(100)]
    for text in texts:
        sample.add(text)
    assert "".join(sample) == "".join(texts)
    assert sample.is_all
    assert sample.characters == sample.read_characters == len("".join(texts))


@pytest.mark.parametrize("limit", [20_000, 100_000, 390_000])
def test_of_a_longer_text_the_limit_is_used_but_never_passed_and_every_part_is_in_it(limit: int):
    sample = Sample(limit)
    for number in range(4_000):
        sample.add(f"{number:04d}" + "." * 95 + "\n")
        assert sum(map(len, sample)) <= limit
    assert not sample.is_all
    assert sample.characters == sum(map(len, sample)) > 0.75 * limit
    assert sample.read_characters == 400_000
    numbers = [int(stretch[:4]) for stretch in sample]
    assert numbers == sorted(numbers)
    for quarter in range(4):
        share = sum(quarter * 1000 <= number < (quarter + 1) * 1000 for number in numbers) / len(numbers)
        # Four standard deviations of a fair choice among so many.
        assert abs(share - 0.25) < 4 * (0.25 * 0.75 / len(numbers)) ** 0.5


def test_one_long_document_is_sampled_like_many():
    sample = Sample(50_000)
    sample.add("".join(f"{number:05d}\n" for number in range(100_000)))
    firsts = [int(stretch[:5]) for stretch in sample]
    assert firsts[0] < 20_000
    assert firsts[-1] > 80_000


def test_the_same_texts_give_the_same_sample():
    def taken() -> list[str]:
        sample = Sample(30_000)
        for number in range(1_000):
            sample.add(f"{number} " * 50)
        return list(sample)

    assert taken() == taken()

"""Units, n-grams and Jaccard similarity against plain Python sets of strings."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.corpus.cleaning import shingles as module
from mlm.corpus.cleaning.shingles import Hashes, jaccard, ngrams, shingle_sets, unit_rows, unit_strings


def hashes_of(text: str) -> Hashes:
    return unit_rows([text]).hashes


words = st.lists(
    st.sampled_from(["the", "a", "cat", "dog", "sat", "on", "mat", "and", "ran", "off"]), max_size=60
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop, NOW!", ["don", "t", "stop", "now"]),
        ("don 't stop now", ["don", "t", "stop", "now"]),
        ("1,000 miles", ["1", "000", "miles"]),
        ("Straße ﬁn １２", ["strasse", "fin", "12"]),
        ("吾輩は猫。", ["吾", "輩", "は", "猫"]),
        ("ﾃｽﾄはGPTです", ["テ", "ス", "ト", "は", "gpt", "で", "す"]),
        ("か\u3099 が", ["が", "が"]),
        ("葛\U000e0100飾区", ["葛", "飾", "区"]),
        ("𠮷野家 髙い", ["𠮷", "野", "家", "髙", "い"]),
        ("한국어 단어", ["한국어", "단어"]),
        ("हिन्दी शब्द", ["हिन्दी", "शब्द"]),
        ("…!? \n\t", []),
        ("", []),
        ("\ud800x", ["x"]),
    ],
)
def test_units_are_words_and_single_characters_of_scripts_without_spaces(text: str, expected: list[str]):
    assert unit_strings(text) == expected
    assert len(hashes_of(text)) == len(expected)


@given(st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1), max_size=20))
def test_equal_units_and_only_they_have_equal_hashes(pieces: list[str]):
    text = " ".join(pieces)
    named = dict(zip(unit_strings(text), hashes_of(text).tolist(), strict=True))
    assert len(set(named.values())) == len(named)
    again = hashes_of("; ".join(reversed(pieces)) + "!").tolist()
    assert set(again) == set(named.values())


def test_half_a_million_different_words_have_different_hashes():
    generator = random.Random(0)
    different = {"".join(generator.choices("abcd", k=generator.randint(1, 14))) for _ in range(500_000)}
    assert len(np.unique(hashes_of(" ".join(different)))) == len(different)


def test_a_text_cut_into_stretches_has_the_same_units(monkeypatch: pytest.MonkeyPatch):
    text = "Some words, 吾輩は猫である。 and some 12,000 more of them\n\n" * 200
    whole = hashes_of(text)
    named = unit_strings(text)
    monkeypatch.setattr(module, "_STRETCH_CHARACTERS", 97)
    assert np.array_equal(hashes_of(text), whole)
    assert unit_strings(text) == named


@given(words, st.integers(1, 6))
def test_ngrams_are_equal_where_the_runs_of_words_are(row: list[str], n: int):
    runs = [tuple(row[i : i + n]) for i in range(len(row) - n + 1)]
    hashes = ngrams(hashes_of(" ".join(row)), n).tolist()
    assert len(hashes) == len(runs)
    assert len(set(zip(runs, hashes, strict=True))) == len(set(runs)) == len(set(hashes))


@given(words, words)
def test_similarity_is_that_of_pythons_sets(first: list[str], second: list[str]):
    def runs(row: list[str]) -> set[tuple[str, ...]]:
        n = min(5, len(row))
        return {tuple(row[i : i + n]) for i in range(len(row) - n + 1)} if row else set()

    a, b = shingle_sets(unit_rows([" ".join(first), " ".join(second)]), 5)
    union = runs(first) | runs(second)
    expected = len(runs(first) & runs(second)) / len(union) if runs(first) and runs(second) else 0.0
    assert jaccard(a, b) == expected


def test_a_text_counts_as_unspaced_when_most_of_it_is():
    texts = ["GPTは言語モデルである", "the word 猫 means cat", "", "猫"]
    assert unit_rows(texts).unspaced.tolist() == [True, False, False, True]


@given(
    st.lists(st.text(st.sampled_from("ab 猫は。１ﾃﾞ\n\u3099"), max_size=30), max_size=12), st.integers(1, 40)
)
def test_texts_together_have_the_units_that_each_has_alone(texts: list[str], together: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STRETCH_CHARACTERS", 31 * together)
        rows = unit_rows(texts)
    alone = [unit_rows([text]) for text in texts]
    assert [rows.row(number).tolist() for number in range(len(texts))] == [
        one.hashes.tolist() for one in alone
    ]
    assert rows.alone.tolist() == [int(one.alone[0]) for one in alone]
    for mine, one in zip(shingle_sets(rows, 5), alone, strict=True):
        assert mine.tolist() == shingle_sets(one, 5)[0].tolist()

"""Overlap with evaluation texts: planted runs of words are found, shorter ones are not, and by whom."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from mlm.corpus.cleaning.contamination import EvaluationSet, Item, Overlap
from mlm.corpus.cleaning.shingles import unit_rows

WORDS = [f"word{i}" for i in range(5000)]


def overlap(known: EvaluationSet, text: str) -> Overlap | None:
    return known.overlaps(unit_rows([text]), [text]).get(0)


def test_a_run_of_13_words_is_found_and_one_of_12_is_not():
    generator = random.Random(1)
    item = [f"test{i}" for i in range(40)]
    known = EvaluationSet([Item("first", "other words entirely"), Item("second", " ".join(item))], 13)
    for length in (12, 13):
        for _ in range(50):
            at, place = generator.randrange(len(item) - length), generator.randrange(100)
            row = generator.choices(WORDS, k=100)
            found = overlap(known, " ".join(row[:place] + item[at : at + length] + row[place:]))
            expected = Overlap(" ".join(item[at : at + 13]), "second", place)
            assert found == (expected if length == 13 else None)


def test_case_punctuation_and_spacing_hide_nothing():
    item = "It was the best of times , it was the worst of times , don 't you think"
    known = EvaluationSet([Item("x", item)], 13)
    assert overlap(known, "He said: “It was the BEST of times—it was the worst of times; don't you think?”")
    assert not overlap(known, "It was the best of times, it was a bad time, it was the worst of times.")


def test_the_end_of_one_item_and_the_beginning_of_the_next_are_no_run():
    row = [f"test{i}" for i in range(40)]
    known = EvaluationSet([Item("a", " ".join(row[:20])), Item("b", " ".join(row[20:]))], 13)
    assert overlap(known, " ".join(row[8:32])) is None
    assert overlap(known, " ".join(row[7:33])) is not None


def test_the_end_of_one_document_and_the_beginning_of_the_next_are_no_run():
    row = [f"test{i}" for i in range(26)]
    known = EvaluationSet([Item("a", " ".join(row))], 13)
    texts = [" ".join(row[:12]), " ".join(row[12:24]), " ".join(row[3:16])]
    assert list(known.overlaps(unit_rows(texts), texts)) == [2]


def test_items_too_short_to_tell_from_chance_are_counted_and_not_sought():
    known = EvaluationSet([Item("a", "What is the capital of France?"), Item("b", "")], 13)
    assert (known.items, known.short, known.ngrams) == (2, 2, 0)
    assert not overlap(known, "What is the capital of France? " * 5)


def test_japanese_is_sought_by_runs_of_twice_as_many_characters():
    item = "下人は、既に、雨を冒して、京都の町へ強盗を働きに急いでいた。"
    known = EvaluationSet([Item("rashomon", item)], 13)
    found = overlap(known, f"「{item}」と書いてある。")
    assert found is not None
    assert found.ngram == "下人は既に雨を冒して京都の町へ強盗を働きに急いでいた"[:26]
    assert not overlap(known, "京都の町へ強盗を働きに急いで行った。雨を冒して歩く。")
    assert not overlap(known, "an English text " * 20)


@pytest.mark.parametrize("passages", [200])
def test_real_passages_in_real_books_are_found_and_nothing_else_is(passages: int):
    folder = Path(os.environ.get("MLM_TEST_DATA", "/nowhere"))
    if not (folder / "lambada").is_dir() or not (folder / "classics").is_dir():
        pytest.skip("set MLM_TEST_DATA to a folder with lambada/, wikitext-raw/ and classics/")
    lambada = (folder / "lambada" / "lambada_test.jsonl").read_text(encoding="utf-8").splitlines()
    items = [Item(f"lambada:{n}", json.loads(line)["text"]) for n, line in enumerate(lambada, 1)]
    wiki = (folder / "wikitext-raw" / "wiki.test.raw").read_text(encoding="utf-8")
    items += [Item(f"wiki:{n}", line) for n, line in enumerate(wiki.splitlines(), 1)]
    known = EvaluationSet(items, 13)
    books = (folder / "classics" / "classics_small.jsonl").read_text(encoding="utf-8").splitlines()
    chapters = [json.loads(line)["text"] for line in books]

    clean = [chapter for chapter in chapters if overlap(known, chapter) is None]
    assert len(clean) >= len(chapters) - 2  # LAMBADA quotes nobody, but a set phrase may be shared

    generator = random.Random(0)
    long_enough = [item for item in items if len(item.text.split()) > 40]
    for item in generator.sample(long_enough, passages):
        chapter = generator.choice(clean)
        place = generator.randrange(len(chapter))
        row = item.text.split()
        begin = generator.randrange(len(row) - 30)
        planted = f"{chapter[:place]} {' '.join(row[begin : begin + 30])} {chapter[place:]}"
        found = overlap(known, planted)
        assert found is not None, item
        assert overlap(known, planted.upper()) == found

"""Sentences: the cuts a reader would make in English and Japanese, nothing lost, nothing endless."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.data.sentences import SentenceCounts, split_sentences
from mlm.data.tokenizers import Gpt2Tokenizer


def sentences(text: str, longest: int = 2000) -> list[str]:
    return split_sentences(text, longest, SentenceCounts())


@pytest.mark.parametrize(
    "expected",
    [
        [
            "Dr. Smith paid $3.50 for it.",
            ' "Did he?" she asked.',
            " U.S. troops left.",
            "\n\nA new one begins.",
        ],
        ["One!", "  Two?", "\tThree...", " Four (with a remark).", " e.g. five."],
        ["今日は晴れです。", "明日は雨かな？", "やった！", "半角?", "はい!"],
        ["「いいえ。違います！」と彼は言った。", "終わり。"],
        [
            "これは「えっ。本当？」という話だ。",
            "（注。括弧の中。）続く。",
            "『わかった。』",
            "彼女は笑った。",
        ],
        ["値は３．５％です。", "\n次の行。", "😀絵文字。", "𠮷野家へ行く。"],
        ["え！？", "そう……。", "〝はい。〟と答えた。"],
        ["no end at all"],
        ["   "],
    ],
    ids=lambda expected: expected[0][:12],
)
def test_sentences_end_where_a_reader_ends_them(expected: list[str]) -> None:
    assert sentences("".join(expected)) == expected


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet='ab 。「」！.?\n\r　😀１3)"…、', max_size=80), st.integers(1, 30))
def test_sentences_join_to_the_text_and_none_is_too_long(text: str, longest: int) -> None:
    counts = SentenceCounts()
    found = split_sentences(text, longest, counts)
    assert "".join(found) == text
    assert all(0 < len(sentence) <= longest for sentence in found)
    assert counts.sentences == len(found)
    assert (counts.forced > 0) <= (len(text) > longest)


def test_a_quotation_without_end_is_cut_where_its_sentences_end_and_this_is_counted() -> None:
    counts = SentenceCounts()
    found = split_sentences("「" + "あいうえお。" * 50, 100, counts)
    assert all(sentence.endswith("。") and len(sentence) <= 100 for sentence in found)
    counts = SentenceCounts()
    found = split_sentences("word " * 100, 48, counts)
    assert counts.forced == 11  # 45 characters fit each time, of 500
    assert all(len(sentence) <= 48 and sentence.endswith(" ") for sentence in found)


@pytest.mark.parametrize("unit", ["あ。", "a", "Hello it is. ", " ", "\n", '"', "「", "a\n\n"])
def test_the_time_grows_no_faster_than_the_text(unit: str) -> None:
    begun_s = time.perf_counter()
    sentences(unit * 100_000)
    assert time.perf_counter() - begun_s < 20  # a second on an idle machine; quadratic work takes minutes


def test_gpt2_ids_of_the_sentences_join_to_those_of_the_document(test_data: Path) -> None:
    gpt2 = Gpt2Tokenizer()
    with open(test_data / "classics" / "classics_small.jsonl", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file][:30]
    for text in texts:
        found = sentences(text)
        assert len(found) > 20
        assert [i for sentence in found for i in gpt2.encode(sentence)] == gpt2.encode(text).tolist()

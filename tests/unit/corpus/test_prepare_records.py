"""Dirty JSON: what is a record, what is not, and what a user reads about it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.corpus.reading.blocks import Block, Cursor, Cutting
from mlm.corpus.reading.json_record import Flawed, json_texts
from mlm.corpus.reading.records import read_records

VALID = {
    b'{"text":"plain"}': "plain",
    b'  {"text" : "space around" }\t\r': "space around",
    b'{"id":{"text":"inner"},"text":"outer"}': "outer",
    '{"text":"\u2028 and \u2029 and \x85 end no line"}'.encode(): "\u2028 and \u2029 and \x85 end no line",
    b'{"text":"nul \\u0000, bell \\u0007"}': "nul \0, bell \a",
    b'{"text":"pair \\ud83d\\ude00"}': "pair 😀",
    b'{"text":"says \\"text\\": \\"text\\""}': 'says "text": "text"',
    b'{"text":"a","score":NaN,"other":[Infinity,-Infinity]}': "a",
    b'{"text":"b","big":123456789012345678901234567890}': "b",
    b'{"text":"c","other":"\\ud800 half"}': "c",
    b'{"text":"d","id":1,"id":2}': "d",
    b'\xef\xbb\xbf{"text":"mark in front"}': "mark in front",
    b'{"te\\u0078t":"escaped key"}': "escaped key",
    b'{"text":""}': "",
    b'{"text":"<|endoftext|></s>[MASK]"}': "<|endoftext|></s>[MASK]",
}
INVALID = {
    b'{"content":"x"}': "has no key 'text' (its keys: 'content')",
    b"{}": "has no key 'text' (its keys: none)",
    b'{"text":null}': "has null under the key 'text', not a text",
    b'{"text":5}': "has the number 5 under the key 'text'",
    b'{"text":true}': "has true under the key 'text'",
    b'{"text":NaN}': "has the number nan under the key 'text'",
    b'{"text":["a"]}': "has an array under the key 'text'",
    b'{"text":{"a":1}}': "has an object under the key 'text'",
    b'{"text":"a","text":"b"}': "has the key 'text' 2 times",
    b'{"text":"a","te\\u0078t":"b", "text" : "c"}': "has the key 'text' 3 times",
    b'{"text":"\\ud800 half"}': "has half a surrogate pair (\\ud800) in 'text'",
    b'{"text":"\\udc00\\ud800"}': "has half a surrogate pair (\\udc00) in 'text'",
    b'{"text":"\xff"}': "is not UTF-8 (0xff is byte 10 of the record)",
    b'{"text":"\xed\xa0\x80"}': "is not UTF-8 (0xed is byte 10",
    b'{"text":"raw \0"}': "is not JSON (Invalid control character at, character 14)",
    b'{"text":"cut': "is not JSON (Unterminated string starting at, character 9)",
    b'{"text":"a"} {"text":"b"}': "is not JSON (Extra data, character 14)",
    b"{'text':'a'}": "is not JSON (Expecting property name enclosed in double quotes, character 2)",
    b'["text"]': "is an array, not an object",
    b'"text"': "is a string, not an object",
    b"null": "is null, not an object",
    b"17": "is the number 17, not an object",
    b"plain words": "is not JSON (Expecting value, character 1)",
    b"\0\0\0": "is not JSON (Expecting value, character 1)",
    b"[" * 100_000: "is not JSON that can be read (maximum recursion depth exceeded",
}


@pytest.mark.parametrize("raw", VALID, ids=lambda raw: raw.decode()[:24])
def test_a_valid_record_gives_its_text_unaltered(raw: bytes) -> None:
    assert json_texts(raw, ["text"]) == [VALID[raw]]


@pytest.mark.parametrize("raw", INVALID, ids=lambda raw: repr(raw[:24]))
def test_an_invalid_record_is_named_by_what_is_wrong(raw: bytes) -> None:
    with pytest.raises(Flawed) as flaw:
        json_texts(raw, ["text"])
    assert INVALID[raw] in flaw.value.detail


@given(st.dictionaries(st.text(max_size=4), st.text() | st.none(), max_size=4), st.text(), st.booleans())
def test_whatever_json_writes_comes_back_as_it_was(others, text, ascii_only):
    raw = json.dumps({**others, "text": text}, ensure_ascii=ascii_only).encode("utf-8", "replace")
    assert json_texts(raw, ["text"]) == [text]


def test_a_block_names_each_flaw_by_its_line_and_keeps_every_other_record() -> None:
    lines = [line for pair in zip(VALID, INVALID, strict=False) for line in (*pair, b"", b" \r")]
    block = Block(0, "lines", 1, 1, b"\n".join(lines) + b'\n{"text":"cut', True, 0, Cursor(1))
    records = read_records(block, (), Cutting())
    assert [texts[0] for texts in records.texts] == list(VALID.values())
    assert records.places == list(range(0, 4 * len(VALID), 4))
    assert [flaw.place for flaw in records.flaws] == [*range(1, 4 * len(VALID), 4), 4 * len(VALID)]
    assert records.units == len(lines) + 1
    assert records.flaws[-1].detail.endswith("; it is the last line: is the file cut off?")


def test_each_wanted_key_gives_a_text_and_a_missing_one_is_a_flaw() -> None:
    assert json_texts(b'{"text":"a","title":"b"}', ["title", "text"]) == ["b", "a"]
    with pytest.raises(Flawed, match="no key 'title'"):
        json_texts(b'{"text":"a"}', ["text", "title"])

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.corpus.cleaning.replace_text import replace_text

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ('{"text": "old"}', '{"text": "new"}'),
        ('{"id":1e05,"text":"o\\"ld","x": [1,  2.50]}', '{"id":1e05,"text":"new","x": [1,  2.50]}'),
        (
            ' { "meta":{"text":"stays"} , "text" :\t"old" } ',
            ' { "meta":{"text":"stays"} , "text" :\t"new" } ',
        ),
        ('{"te\\u0078t":"old"}', '{"te\\u0078t":"new"}'),
        ('{"text":"first","a":"\\u00e9","text":"last"}', '{"text":"new","a":"\\u00e9","text":"new"}'),
        ('{"a":NaN,"text":"old"}', '{"a":NaN,"text":"new"}'),
    ],
)
def test_only_the_texts_own_bytes_change(record: str, expected: str):
    assert replace_text(record, "text", "new") == expected


@given(st.dictionaries(st.text(), values), st.text(), st.booleans())
def test_the_record_reads_as_before_but_for_the_text(record: dict[str, object], text: str, ascii_only: bool):
    record["text"] = "old"
    out = replace_text(json.dumps(record, ensure_ascii=ascii_only), "text", text)
    assert json.loads(out) == {**record, "text": text}
    assert "\n" not in out

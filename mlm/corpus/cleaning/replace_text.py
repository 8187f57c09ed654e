"""Another text in a JSON record, and every other byte of the record as it was."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def replace_text(record: str, key: str, text: str) -> str:
    """The record (a JSON object that has the key) with the key's value replaced; of several, each one.

    A repeated key is legal JSON of which readers take the first or the last: all of them get the new text.
    """
    at = _after_space(record, 0) + 1  # after the opening brace
    pieces: list[str] = []
    copied = 0
    while True:
        at = _after_space(record, at)
        if record[at] == "}":
            return "".join([*pieces, record[copied:]])
        name, at = scanstring(record, at + 1)
        begin = _after_space(record, _after_space(record, at) + 1)  # after the colon
        _, at = _DECODER.raw_decode(record, begin)
        if name == key:
            pieces += [record[copied:begin], json.dumps(text, ensure_ascii=False)]
            copied = at
        at = _after_space(record, at)
        at += record[at] == ","


def _after_space(record: str, at: int) -> int:
    match = _SPACE.match(record, at)
    assert match is not None, "white space may be nothing"
    return match.end()

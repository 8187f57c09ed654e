"""One JSON record to its texts, or to a sentence about what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson


class Flawed(Exception):
    """A record that is not valid. kind: for counting; detail: what a user reads after its place."""

    def __init__(self, kind: str, detail: str):
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail


def json_texts(raw: bytes, keys: Sequence[str]) -> list[str]:
    """The text under each key of one object, as it is written. Raises Flawed.

    Whatever Python's json writes is read: NaN and Infinity under other keys, for instance, and half a
    surrogate pair there. A wanted key that an object has twice is a flaw: nobody can say which text is meant.
    """
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError:
        record = _slow(raw, keys)
    if type(record) is not dict:
        raise Flawed("no object", f"is {_kind(record)}, not an object {{{_wanted(keys)}}}")
    texts = []
    for key in keys:
        text = record.get(key)
        if type(text) is not str:
            raise _no_text(record, key)
        # As a token of JSON the quoted key can stand only for itself: inside a text its quotes are escaped.
        if raw.count(b'"%b"' % key.encode()) > 1:
            _slow(raw, keys)
        texts.append(text)
    return texts


def _slow(raw: bytes, keys: Sequence[str]) -> Any:
    """Parse with Python's own parser, which takes more and says more."""
    if not raw:
        raise Flawed("not JSON", "is empty: the array is not closed, or has two commas in a row")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Flawed("not UTF-8", not_utf8(error, "of the record")) from None
    outermost: list[tuple[str, Any]] = []

    def remember(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal outermost
        outermost = pairs
        return dict(pairs)

    try:
        record = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=remember)
    except json.JSONDecodeError as error:
        raise Flawed("not JSON", f"is not JSON ({error.msg}, character {error.pos + 1:,})") from None
    except (RecursionError, ValueError) as error:
        raise Flawed("not JSON", f"is not JSON that can be read ({error})") from None
    if type(record) is not dict:
        return record
    names = [name for name, _ in outermost]
    for key in keys:
        if names.count(key) > 1:
            raise Flawed("with a key twice", f"has the key {key!r} {names.count(key)} times")
        value = record.get(key)
        if type(value) is str and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                code = f"\\u{ord(value[error.start]):04x}"
                detail = f"has half a surrogate pair ({code}) in {key!r}, which is no character"
                raise Flawed("with half a surrogate pair", detail) from None
    return record


def _no_text(record: dict[str, Any], key: str) -> Flawed:
    if key in record:
        return Flawed(
            "with no text under a key", f"has {_kind(record[key])} under the key {key!r}, not a text"
        )
    names = ", ".join(repr(name) for name in list(record)[:8]) + (", ..." if len(record) > 8 else "")
    return Flawed("without a key", f"has no key {key!r} (its keys: {names or 'none'})")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a string"
        case list():
            return "an array"
    return "an object"


def _wanted(keys: Sequence[str]) -> str:
    return ", ".join(f'"{key}": "..."' for key in keys)


def not_utf8(error: UnicodeDecodeError, of: str) -> str:
    """The first byte that is no part of a character, and where."""
    return f"is not UTF-8 (0x{error.object[error.start]:02x} is byte {error.start + 1:,} {of})"

"""The items of a JSON array that may be larger than memory, cut apart without being parsed."""

from __future__ import annotations

import re

_OPENING = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*\[")
# A comma separates items only outside of them; deeper inside there can be millions, and none counts.
_MARK_OUTSIDE = re.compile(rb'["\[\]{},]')
_MARK_INSIDE = re.compile(rb'["\[\]{}]')
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

NOT_CLOSED = b""
"""Stands for an item where the file ends before its array does: like any empty item, it will not parse."""


class ArrayCutter:
    """Takes the bytes of `[item, item, ...]` chunk by chunk and gives the items back, each as it is written.

    begun: the bytes begin after a comma of the array, as at a restart. An item of more than `longest` bytes
    comes as its length instead. consumed: bytes up to and with the last comma or bracket.
    """

    def __init__(self, begun: bool, longest: int):
        self.consumed = 0
        self._taken = 0  # bytes before those being scanned
        self._begun = begun
        self._closed = False
        self._longest = longest
        self._held = b""
        self._item = bytearray()
        self._length = 0
        self._depth = 0
        self._in_string = False

    def feed(self, chunk: bytes) -> list[bytes | int]:
        """The items that end in this chunk."""
        data = self._held + chunk
        if not self._begun and not _OPENING.match(data):
            self._held = data
            return []
        # A backslash and what it escapes are looked at together.
        self._held = data[len(data.rstrip(b"\\")) :]
        return self._scan(data[: len(data) - len(self._held)])

    def finish(self) -> list[bytes | int]:
        """What is left at the end: nothing after a complete array, else something that does not parse."""
        rest = self._scan(self._held)
        if self._closed:
            return rest
        item = self._take()
        return [*rest, *([item] if item else []), NOT_CLOSED]

    def _scan(self, data: bytes) -> list[bytes | int]:
        items: list[bytes | int] = []
        at = begin = 0
        if not self._begun and (opening := _OPENING.match(data)):
            self._begun, begin = True, opening.end()
            at = begin
        while at < len(data) and not self._closed:
            if self._in_string:
                string = _REST_OF_STRING.match(data, at)
                if not string:
                    break
                self._in_string, at = False, string.end()
                continue
            mark = (_MARK_INSIDE if self._depth else _MARK_OUTSIDE).search(data, at)
            if not mark:
                break
            at, what = mark.end(), mark[0]
            if what == b'"':
                self._in_string = True
            elif what in b"[{":
                self._depth += 1
            elif self._depth:
                self._depth -= what in b"]}"
            elif what in b",]":
                self._keep(data[begin : at - 1])
                begin = at
                self._closed = what == b"]"
                item = self._take()
                if item != b"" or not self._closed:  # nothing before the bracket: no item, or a last comma
                    items.append(item)
                self.consumed = self._taken + at
        self._keep(data[begin:])
        if self._closed and self._take() != b"":
            items.append(b"]")  # text after the array: the file is not what it seems
        self._taken += len(data)
        return items

    def _keep(self, part: bytes) -> None:
        self._length += len(part)
        if self._length <= self._longest:
            self._item += part

    def _take(self) -> bytes | int:
        """The item gathered so far, without the space around it; its length when it is too long to keep."""
        item = bytes(self._item).strip() if self._length <= self._longest else self._length
        self._item.clear()
        self._length = 0
        return item

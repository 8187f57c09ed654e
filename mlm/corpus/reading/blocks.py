"""Sources cut into blocks of whole records, a few MiB each, whoever will read them.

Where a block ends depends on the bytes of its source alone, so that the number of workers changes nothing;
a cursor says where the next one begins, so that reading can go on there after a restart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlm.corpus.reading.inputs import BOM, DAMAGED, Source, damaged, open_source
from mlm.corpus.reading.json_array import ArrayCutter

BLOCK_BYTES = 4 << 20
# Text files that are a document each travel together: a block for each would cost more than encoding it.
FILES_PER_BLOCK = 512
ROWS_AT_ONCE = 256
MAX_DOCUMENT_BYTES = 256 << 20


@dataclass(frozen=True)
class Cursor:
    """A place between two records: bytes of (decompressed) text into a source, or rows of a Parquet file."""

    source: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Block:
    """Whole records of one source, or several small sources whole.

    kind: lines or items (JSON), text_lines, paragraphs, files (a document each), rows (Parquet), oversized
    (one record larger than allowed, which nobody reads). start, stop: offsets in the source; for `files`,
    the numbers of the sources. data: the bytes, or None when a worker reads them from the file itself.
    consumed: bytes of the source, as it lies, read up to here. last: nothing of the source follows.
    """

    source: int
    kind: str
    start: int
    stop: int
    data: Any
    last: bool
    consumed: int
    next: Cursor


@dataclass(frozen=True)
class Cutting:
    """How sources become records. keys: wanted of JSON and Parquet; text_unit: what a document of .txt is."""

    keys: tuple[str, ...] = ("text",)
    text_unit: str = "file"
    max_document_bytes: int = MAX_DOCUMENT_BYTES


def cut_sources(sources: Sequence[Source], cutting: Cutting, begin: Cursor) -> Iterator[Block]:
    """All blocks from a cursor on, in order. Raises BadData when a source cannot be read to its end."""
    number = begin.source
    while number < len(sources):
        if sources[number].format == "txt" and cutting.text_unit == "file":
            block = _small_files(sources, number, cutting.max_document_bytes)
            yield block
            number = block.stop
        else:
            yield from cut_source(sources[number], number, cutting, begin.offset)
            number += 1
        begin = Cursor(number)


def _small_files(sources: Sequence[Source], first: int, longest: int) -> Block:
    stop, size = first, 0
    while stop < len(sources) and stop - first < FILES_PER_BLOCK and sources[stop].format == "txt":
        size += sources[stop].size or 0
        if sources[stop].path == "-" and stop > first:
            break
        stop += 1
        if size >= BLOCK_BYTES or sources[stop - 1].path == "-":
            break
    data = None
    if sources[first].path == "-":
        # Only this process has it.
        with open_source(sources[first]) as file:
            data = file.read(longest + 1)
    return Block(first, "files", first, stop, data, True, size, Cursor(stop))


def cut_source(source: Source, number: int, cutting: Cutting, offset: int) -> Iterator[Block]:
    """The blocks of one source from an offset on, which is where an earlier block of it ended."""
    if source.format == "parquet":
        return _cut_rows(source, number, cutting, offset)
    if source.format == "txt":
        if cutting.text_unit == "paragraph":
            return _cut_stream(source, number, "paragraphs", cutting, offset, _last_blank_line, _blank_line)
        kind = "text_lines"
    else:
        if source.format == "json" and _is_array(source):
            return _cut_items(source, number, cutting, offset)
        kind = "lines"
    if source.plain:
        return _cut_file(source, number, kind, cutting, offset)
    return _cut_stream(source, number, kind, cutting, offset, _last_line_end, _line_end)


def _cut_file(source: Source, number: int, kind: str, cutting: Cutting, offset: int) -> Iterator[Block]:
    """Lines of a file that workers read themselves: only the places of the cuts are looked at here."""
    size, start = source.size or 0, offset

    def block(kind: str, start: int, stop: int) -> Block:
        return Block(number, kind, start, stop, None, stop == size, stop, Cursor(number, stop))

    try:
        descriptor = os.open(source.path, os.O_RDONLY)
    except OSError as error:
        raise damaged(source, error, 0) from None
    try:
        while start < size:
            nominal = start + BLOCK_BYTES
            stop = _line_end_from(descriptor, nominal - 1, size) if nominal < size else size
            if stop - start > max(BLOCK_BYTES, cutting.max_document_bytes):
                # The line across the nominal cut is long: too long, or just a block of its own.
                line = start + os.pread(descriptor, BLOCK_BYTES, start).rfind(b"\n") + 1
                if line > start:
                    yield block(kind, start, line)
                fits = stop - line - 1 <= cutting.max_document_bytes  # without its line end
                yield block(kind if fits else "oversized", line, stop)
            else:
                yield block(kind, start, stop)
            start = stop
    finally:
        os.close(descriptor)


def _line_end_from(descriptor: int, position: int, size: int) -> int:
    """The offset after the first newline at or after a position; the size when there is none."""
    step = 1 << 16
    while position < size:
        chunk = os.pread(descriptor, step, position)
        if not chunk:
            break
        at = chunk.find(b"\n")
        if at >= 0:
            return position + at + 1
        position, step = position + len(chunk), BLOCK_BYTES
    return size


def _last_line_end(buffer: bytearray, begin: int) -> int:
    return buffer.rfind(b"\n", begin) + 1


def _line_end(buffer: bytearray) -> int:
    return buffer.find(b"\n") + 1


def _last_blank_line(buffer: bytearray, begin: int) -> int:
    # A blank line is nothing between two line ends; three bytes back, the cut may lie across the border.
    begin = max(begin - 3, 0)
    ends = [at + len(mark) for mark in (b"\n\n", b"\n\r\n") if (at := buffer.rfind(mark, begin)) >= 0]
    return max(ends, default=0)


def _blank_line(buffer: bytearray) -> int:
    ends = [at + len(mark) for mark in (b"\n\n", b"\n\r\n") if (at := buffer.find(mark)) >= 0]
    return min(ends, default=0)


def _cut_stream(
    source: Source,
    number: int,
    kind: str,
    cutting: Cutting,
    offset: int,
    last_end: Callable[[bytearray, int], int],
    first_end: Callable[[bytearray], int],
) -> Iterator[Block]:
    """Units of a stream that only one process can read: compressed, or standard input.

    last_end(buffer, begin): the offset after the last whole unit, looking from begin on, or 0;
    first_end(buffer): after the first.
    """
    buffer, start, longest = bytearray(), offset, max(BLOCK_BYTES, cutting.max_document_bytes)
    with _Reader(source, offset) as reader:

        def block(kind: str, stop: int, data: bytes | None) -> Block:
            return Block(number, kind, start, stop, data, False, reader.consumed, Cursor(number, stop))

        while chunk := reader.read():
            seen = len(buffer)
            buffer += chunk
            end = last_end(buffer, seen)
            if end:
                yield block(kind, start + end, bytes(buffer[:end]))
                start += end
                del buffer[:end]
            elif len(buffer) > longest:
                skipped = 0
                while not (end := first_end(buffer)):
                    keep = min(len(buffer), 3)  # the beginning of an end across the border
                    skipped += len(buffer) - keep
                    del buffer[:-keep]
                    chunk = reader.read()
                    buffer += chunk
                    if not chunk:
                        end = len(buffer)
                        break
                yield block("oversized", start + skipped + end, None)
                start += skipped + end
                del buffer[:end]
        if buffer:
            stop = start + len(buffer)
            yield Block(number, kind, start, stop, bytes(buffer), True, reader.consumed, Cursor(number + 1))


def _is_array(source: Source) -> bool:
    """Whether a .json file holds one array rather than an object a line."""
    with _Reader(source, 0) as reader:
        head = reader.read(1 << 12)
    return head.removeprefix(BOM).lstrip().startswith(b"[")


def _cut_items(source: Source, number: int, cutting: Cutting, offset: int) -> Iterator[Block]:
    """Items of a JSON array; an item longer than allowed is passed on as oversized."""
    cutter = ArrayCutter(begun=offset > 0, longest=cutting.max_document_bytes)
    items: list[bytes | int] = []
    start = offset
    with _Reader(source, offset) as reader:
        while chunk := reader.read():
            items += cutter.feed(chunk)
            stop = offset + cutter.consumed
            if stop - start >= BLOCK_BYTES:
                after = Cursor(number, stop)
                yield Block(number, "items", start, stop, items, False, reader.consumed, after)
                items, start = [], stop
        items += cutter.finish()
        yield Block(number, "items", start, reader.position, items, True, reader.consumed, Cursor(number + 1))


def _cut_rows(source: Source, number: int, cutting: Cutting, offset: int) -> Iterator[Block]:
    """Rows of a Parquet file, as Arrow's own stream of bytes with the wanted columns."""
    from mlm.corpus.reading.parquet import row_blocks

    for data, start, stop, rows in row_blocks(source, cutting.keys, offset, ROWS_AT_ONCE, BLOCK_BYTES):
        last = stop == rows
        consumed = (source.size or 0) * stop // max(rows, 1)
        after = Cursor(number + 1) if last else Cursor(number, stop)
        yield Block(number, "rows", start, stop, data, last, consumed, after)


class _Reader:
    """The decompressed bytes of a source from an offset on; BadData where they cannot be had."""

    def __init__(self, source: Source, offset: int):
        self.source = source
        self.position = 0
        try:
            self._file = open_source(source)
        except OSError as error:
            raise damaged(source, error, 0) from None
        while self.position < offset:
            if not self.read(min(BLOCK_BYTES, offset - self.position)):
                break

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        try:
            chunk = self._file.read(size)
        except DAMAGED as error:
            raise damaged(self.source, error, self.position) from None
        self.position += len(chunk)
        return chunk

    @property
    def consumed(self) -> int:
        """Bytes of the file as it lies, read so far."""
        return self._file.consumed

"""From the bytes of a block to the texts of its records: each is valid, or named with its flaw."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mlm.corpus.reading.blocks import Block, Cutting
from mlm.corpus.reading.inputs import BOM, DAMAGED, Source, damaged, open_source
from mlm.corpus.reading.json_record import Flawed, json_texts, not_utf8
from mlm.corpus.reading.parquet import rows_of

_BLANK_LINES = re.compile(rb"\r?\n(?:\r?\n)+")

Row = list[bytes | None]
Unit = bytes | int | Row
"""What a record is read from; of one that is too long only its length, of Parquet a value per key."""


@dataclass(frozen=True)
class Flaw:
    """Why a record is not valid. place: its number in the block, from 0; kind: for counting."""

    place: int
    kind: str
    detail: str


@dataclass
class Records:
    """The records of a block: texts[i] has a text per key; raw[i] is what it was read from, at places[i].

    units: lines, paragraphs, items, rows or files of the block, blank ones too; bytes: their length.
    """

    units: int
    texts: list[list[str]] = field(default_factory=list)
    raw: list[Unit] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    bytes: int = 0


def read_records(block: Block, sources: Sequence[Source], cutting: Cutting) -> Records:
    """Every record of a block; blank lines are none. Raises BadData when a file can no longer be read."""
    count, units = _units(block, sources, cutting)
    records, longest = Records(count), cutting.max_document_bytes
    for place, unit in units:
        size = unit if isinstance(unit, int) else _size(unit)
        records.bytes += size
        try:
            if size > longest:
                raise Flawed("too long", f"is {size:,} bytes long, over --max-document-bytes {longest}")
            texts = _texts(block.kind, unit, cutting.keys)
        except Flawed as flaw:
            cut_off = block.kind == "lines" and block.last and place == count - 1 and flaw.kind == "not JSON"
            hint = "; it is the last line: is the file cut off?" if cut_off else ""
            records.flaws.append(Flaw(place, flaw.kind, flaw.detail + hint))
            continue
        records.texts.append(texts)
        records.raw.append(unit)
        records.places.append(place)
    return records


def record_name(sources: Sequence[Source], block: Block, before: int, place: int) -> str:
    """What messages call a record of a block. before: units of its source in the blocks before this one."""
    if block.kind == "files":
        return sources[block.start + place].name
    name, number = sources[block.source].name, before + place + 1
    if block.kind in ("lines", "text_lines", "oversized"):
        return f"{name}:{number}"
    return f"{name}, {block.kind.removesuffix('s')} {number:,}"


def _units(
    block: Block, sources: Sequence[Source], cutting: Cutting
) -> tuple[int, Iterable[tuple[int, Unit]]]:
    """How many units a block has, and those that are not blank, with their places."""
    match block.kind:
        case "oversized":
            return 1, [(0, block.stop - block.start)]
        case "files":
            return block.stop - block.start, enumerate(_whole_files(block, sources, cutting))
        case "rows":
            return block.stop - block.start, enumerate(rows_of(block.data, cutting.keys))
        case "items":
            return len(block.data), enumerate(block.data)
    data = block.data if block.data is not None else _read(sources[block.source], block)
    if block.start == 0:
        data = data.removeprefix(BOM)
    units = _BLANK_LINES.split(data) if block.kind == "paragraphs" else data.split(b"\n")
    count = len(units) - (not units[-1])
    return count, ((place, unit) for place, unit in enumerate(units) if unit and not unit.isspace())


def _size(unit: bytes | Row) -> int:
    return len(unit) if isinstance(unit, bytes) else sum(len(value) for value in unit if value)


def _texts(kind: str, unit: Unit, keys: Sequence[str]) -> list[str]:
    if isinstance(unit, list):
        return [_row_text(value, key) for value, key in zip(unit, keys, strict=True)]
    assert isinstance(unit, bytes), "lengths stand for records that are too long"
    if kind in ("lines", "items"):
        return json_texts(unit, keys)
    if kind == "paragraphs":
        unit = unit.strip(b"\r\n")
    elif kind == "text_lines":
        unit = unit.removesuffix(b"\r")
    return [_decoded(unit, f"of the {'text' if kind == 'files' else kind.split('_')[-1].removesuffix('s')}")]


def _row_text(value: bytes | None, key: str) -> str:
    if value is None:
        raise Flawed("with no text under a key", f"has null in the column {key!r}")
    return _decoded(value, f"of the column {key!r}")


def _decoded(raw: bytes, of: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Flawed("not UTF-8", not_utf8(error, of)) from None


def _read(source: Source, block: Block) -> bytes:
    """The bytes of a block that lies in a plain file."""
    try:
        with open(source.path, "rb") as file:
            file.seek(block.start)
            data = file.read(block.stop - block.start)
    except OSError as error:
        raise damaged(source, error, block.start) from None
    if len(data) < block.stop - block.start:
        raise damaged(source, OSError("it has become shorter meanwhile"), block.start)
    return data


def _whole_files(block: Block, sources: Sequence[Source], cutting: Cutting) -> Iterator[bytes | int]:
    for source in sources[block.start : block.stop]:
        if block.data is not None:
            text = block.data
        else:
            try:
                with open_source(source) as file:
                    text = file.read(cutting.max_document_bytes + 1)
                    if len(text) > cutting.max_document_bytes:
                        yield len(text) + sum(map(len, iter(lambda: file.read(1 << 20), b"")))
                        continue
            except DAMAGED as error:
                raise damaged(source, error, 0) from None
        yield text.removeprefix(BOM)

"""The documents of many files one after the other, for whoever needs them in this process and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mlm.corpus.reading.blocks import Cursor, Cutting, cut_sources
from mlm.corpus.reading.inputs import Source
from mlm.corpus.reading.records import Flaw, Unit, read_records, record_name
from mlm.data.bad_data import BadData

SKIP_REMEDY = "correct it, or pass over such records with --on-error skip"


@dataclass(frozen=True)
class Document:
    """A record. where: FILE:LINE or the like; texts: one per key; raw: what it was read from, no line end."""

    where: str
    texts: list[str]
    raw: Unit


def documents(
    sources: Sequence[Source],
    cutting: Cutting | None = None,
    on_flaw: Callable[[str, Flaw], None] | None = None,
) -> Iterator[Document]:
    """Every valid record in the order of the sources, in memory bounded by a block or the longest record.

    on_flaw: called with the place of a record that is not valid, and why; without it the first one raises
    BadData.
    """
    cutting = cutting or Cutting()
    units: dict[int, int] = {}
    for block in cut_sources(sources, cutting, Cursor()):
        records = read_records(block, sources, cutting)

        before = units.get(block.source, 0)
        for flaw in records.flaws:
            where = record_name(sources, block, before, flaw.place)
            if on_flaw is None:
                raise BadData(where, flaw.detail, SKIP_REMEDY)
            on_flaw(where, flaw)
        for texts, raw, place in zip(records.texts, records.raw, records.places, strict=True):
            yield Document(record_name(sources, block, before, place), texts, raw)
        units = {block.source: before + records.units}

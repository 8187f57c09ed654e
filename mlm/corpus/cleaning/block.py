"""What a worker of `mlm-data filter` does: a block of records judged, and shingles of staged records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.cleaning import shingles
from mlm.corpus.cleaning.judge import CONTAMINATED, KEPT, SHORT, Judge, Judgement
from mlm.corpus.cleaning.replace_text import replace_text
from mlm.corpus.cleaning.shingles import Hashes, unit_rows
from mlm.corpus.cleaning.stage import read_staged
from mlm.corpus.reading.blocks import Block, Cutting
from mlm.corpus.reading.inputs import Source
from mlm.corpus.reading.json_record import json_texts
from mlm.corpus.reading.records import Flaw, Unit, read_records

EXAMPLES = 20
"""Of each reason a block passes on at most so many, and the report shows no more in all."""

EXCERPT_CHARACTERS = 160


@dataclass(frozen=True)
class Context:
    """What every worker knows. cutting: with one key, whose text is judged."""

    sources: Sequence[Source]
    cutting: Cutting
    judge: Judge


@dataclass(frozen=True)
class Example:
    """A document dropped for itself. place: its number in its block; detail: tokens, or the n-gram."""

    place: int
    reason: str
    detail: str
    excerpt: str
    item: str = ""


@dataclass
class Judged:
    """A block after its judgement. lines: the kept records as JSON lines; places: their numbers in the block.

    bytes_read: of input; documents, blank, short, contaminated, changed: counts; tokens: of all documents;
    kept_tokens, text_bytes: of each kept one. sizes, prints, keys: as in Judgement.
    """

    units: int
    bytes_read: int
    flaws: list[Flaw]
    documents: int = 0
    blank: int = 0
    short: int = 0
    contaminated: int = 0
    changed: int = 0
    tokens: int = 0
    examples: list[Example] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    kept_tokens: list[int] = field(default_factory=list)
    text_bytes: list[int] = field(default_factory=list)
    sizes: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, dtype=np.uint32))
    prints: bytes = b""
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 0), dtype=np.uint64))


def judge_block(context: Context, block: Block) -> Judged:
    """Every record of a block: kept as a line, dropped with a reason, or passed on as a flaw."""
    records = read_records(block, context.sources, context.cutting)
    judged = Judged(records.units, records.bytes, records.flaws, documents=len(records.texts))
    numbers = [n for n, texts in enumerate(records.texts) if texts[0] and not texts[0].isspace()]
    judged.blank = len(records.texts) - len(numbers)
    before = [records.texts[number][0] for number in numbers]
    judgement = context.judge(before)
    _count(judged, judgement, [records.places[number] for number in numbers])
    key = context.cutting.keys[0]
    for index in np.flatnonzero(judgement.verdicts == KEPT).tolist():
        number, text = numbers[index], judgement.texts[index]
        is_changed = text != before[index]
        judged.changed += is_changed
        judged.places.append(records.places[number])
        judged.kept_tokens.append(int(judgement.tokens[index]))
        judged.text_bytes.append(len(text) if text.isascii() else len(text.encode()))
        judged.lines.append(_line(block.kind, records.raw[number], key, text, is_changed))
    judged.sizes, judged.prints, judged.keys = judgement.sizes, judgement.prints, judgement.keys
    return judged


def _count(judged: Judged, judgement: Judgement, places: Sequence[int]) -> None:
    judged.tokens = int(judgement.tokens.sum())
    for verdict, reason in ((SHORT, "short"), (CONTAMINATED, "contaminated")):
        dropped = np.flatnonzero(judgement.verdicts == verdict).tolist()
        setattr(judged, reason, len(dropped))
        for index in dropped[:EXAMPLES]:
            overlap = judgement.overlaps.get(index)
            detail = overlap.ngram if overlap else f"{judgement.tokens[index]:,} tokens"
            item = overlap.item if overlap else ""
            judged.examples.append(
                Example(places[index], reason, detail, excerpt(judgement.texts[index]), item)
            )


def _line(kind: str, raw: Unit, key: str, text: str, is_changed: bool) -> bytes:
    """The record as one line of JSON: as it came where it was JSON, else an object with the one key."""
    if kind not in ("lines", "items"):
        return json.dumps({key: text}, ensure_ascii=False).encode()
    assert isinstance(raw, bytes), "a valid JSON record has its bytes"
    # White space around and between its parts is all that can hold a line end: in strings JSON allows none.
    line = raw.strip().replace(b"\r", b" ").replace(b"\n", b" ")
    return replace_text(line.decode(), key, text).encode() if is_changed else line


def staged_shingles(context: Context, job: tuple[str, list[tuple[int, int]]]) -> list[Hashes]:
    """The shingles of staged records. job: the stage's path, and where the records begin and end."""
    key, n = context.cutting.keys[0], context.judge.rules.shingle
    texts = [json_texts(line, [key])[0] for line in read_staged(*job)]
    return shingles.shingle_sets(unit_rows(texts), n)


def excerpt(text: str) -> str:
    """The beginning of a text on one line."""
    start = " ".join(text[: 2 * EXCERPT_CHARACTERS].split())
    return start if len(start) <= EXCERPT_CHARACTERS else start[:EXCERPT_CHARACTERS] + "…"

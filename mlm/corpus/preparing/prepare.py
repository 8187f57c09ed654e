"""Raw text to token datasets: every core encodes, one process writes, in the order of the input."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mlm.corpus.preparing.encode import Encoded, Recipe
from mlm.corpus.preparing.losses import losses
from mlm.corpus.preparing.options import Options, checked, make_plan, refuse_existing
from mlm.corpus.preparing.partial import Partial, State
from mlm.corpus.preparing.pool import Pool
from mlm.corpus.progress import TextProgress
from mlm.corpus.reading.blocks import Block, Cursor, cut_sources
from mlm.corpus.reading.documents import SKIP_REMEDY
from mlm.corpus.reading.inputs import Found
from mlm.corpus.reading.records import record_name
from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.errors import ConfigError, DataError, Problem

# How often what is written is made safe; a kill costs at most the work since then.
COMMIT_S = 5.0
FLAWS_TOLD = 20


@dataclass
class Outcome:
    """What a prepare did. parts: per key, what PREFIX.json says; times in seconds."""

    files: int
    passed_over: list[str]
    records: int
    parts: dict[str, dict[str, Any]]
    skipped: dict[str, int]
    flaws: dict[str, int]
    flaws_told: list[str]
    forced_cuts: int
    engine: str
    workers: int
    startup_s: float
    encoding_s: float
    finishing_s: float
    text_bytes_read: int
    resumed: bool = False
    left_by_another: bool = False
    replaced_workers: int = 0


@dataclass
class _Counts:
    """Sums over blocks; the journal keeps them as JSON."""

    records: int = 0
    bytes: int = 0
    forced_cuts: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    flaws: dict[str, int] = field(default_factory=dict)
    flaws_told: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    documents: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    text_bytes: dict[str, int] = field(default_factory=dict)

    def add(self, keys: tuple[str, ...], encoded: Encoded) -> None:
        self.records += encoded.records
        self.bytes += encoded.bytes
        self.forced_cuts += encoded.forced_cuts
        self.skipped = dict(Counter(self.skipped) + encoded.skipped)
        self.flaws = dict(Counter(self.flaws) + encoded.flaw_kinds)
        for key, part in zip(keys, encoded.parts, strict=True):
            for sums, value in (
                (self.tokens, part.tokens),
                (self.documents, len(part.documents) // 4),
                (self.sequences, len(part.lengths) // 4),
                (self.text_bytes, part.text_bytes),
            ):
                sums[key] = sums.get(key, 0) + value


def prepare(options: Options, say: Callable[[str], None]) -> Outcome:
    """Write the datasets that options ask for. say: takes a line about something out of the ordinary.

    The bytes depend on inputs, tokenizer and options alone, not on the number of workers. A run that was
    ended goes on where its journal says. Raises ConfigError before anything is written, DataError later.
    """
    begun_s = time.monotonic()
    found, tokenizer, recipe = checked(options)
    names = [options.name(key) for key in options.keys]
    plan = make_plan(recipe)
    refuse_existing(options, plan)
    try:
        partial = Partial(options.prefix, names, plan)
    except OSError as error:
        raise _unwritable(options.prefix, error) from None
    try:
        return _prepare(options, found, tokenizer, recipe, partial, begun_s, say)
    except OSError as error:
        partial.close()
        raise _unwritable(partial.folder, error) from None
    except BaseException:
        if partial.state == State() and partial.folder.exists():
            partial.remove()  # nothing in it that could be gone on with
        partial.close()
        raise


def _prepare(
    options: Options,
    found: Found,
    tokenizer: Tokenizer,
    recipe: Recipe,
    partial: Partial,
    begun_s: float,
    say: Callable[[str], None],
) -> Outcome:
    state = partial.state
    counts = _Counts(**state.counts)
    if partial.left_by_another:
        say(f"{partial.folder} held the beginning of another prepare; that is gone, this one begins anew")
    if partial.resumed:
        say(f"going on after {counts.records:,} records, which an earlier run had encoded")
    if not state.complete and (lost := losses(tokenizer, found.sources, recipe.cutting)):
        say(lost)
    workers = options.workers or _cores()
    encoding_s, replaced, text_before = 0.0, 0, counts.bytes
    startup_s = time.monotonic() - begun_s
    if not state.complete:
        with Pool(workers, recipe) as pool:
            startup_s = time.monotonic() - begun_s
            _encode_all(options, found, recipe, partial, counts, pool)
            replaced = pool.replaced
        encoding_s = time.monotonic() - begun_s - startup_s
        if empty := _empty(options, counts):
            partial.remove()
            raise empty
    described = {
        options.name(key): _record(options, found, tokenizer, recipe, counts, key) for key in options.keys
    }
    finishing_begun_s = time.monotonic()
    partial.finish(recipe.dtype, described)
    return Outcome(
        files=len(found.sources),
        passed_over=found.passed_over,
        records=counts.records,
        parts={key: described[options.name(key)] for key in options.keys},
        skipped=counts.skipped,
        flaws=counts.flaws,
        flaws_told=counts.flaws_told,
        forced_cuts=counts.forced_cuts,
        engine=recipe.engine,
        workers=workers,
        startup_s=startup_s,
        encoding_s=encoding_s,
        finishing_s=time.monotonic() - finishing_begun_s,
        text_bytes_read=counts.bytes - text_before,
        resumed=partial.resumed,
        left_by_another=partial.left_by_another,
        replaced_workers=replaced,
    )


def _encode_all(
    options: Options, found: Found, recipe: Recipe, partial: Partial, counts: _Counts, pool: Pool
) -> None:
    state = partial.state
    begin = Cursor(state.source, state.offset)
    sizes_before = [0]
    for source in found.sources:
        sizes_before.append(sizes_before[-1] + (source.size or 0))
    committed_s = time.monotonic()
    with TextProgress("encoding", found.size, sizes_before[begin.source] + state.consumed) as progress:
        blocks = cut_sources(found.sources, recipe.cutting, begin)
        for block, encoded in pool.map(blocks):
            if block.source != state.source:
                state.units = 0
            if encoded.flaw_kinds:
                _take_flaws(options, found, block, encoded, state.units, counts)
            for key, part in zip(options.keys, encoded.parts, strict=True):
                partial.append(options.name(key), part)
            counts.add(options.keys, encoded)
            state.source, state.offset = block.next.source, block.next.offset
            state.units = state.units + encoded.units if state.source == block.source else 0
            state.consumed = block.consumed if state.source == block.source else 0
            done = sizes_before[block.source] + block.consumed
            progress.update(done, encoded.bytes, f"{sum(counts.documents.values()):,} documents")
            if time.monotonic() - committed_s >= COMMIT_S:
                state.counts = asdict(counts)
                partial.commit()
                committed_s = time.monotonic()
    state.counts = asdict(counts)
    partial.commit()


def _take_flaws(
    options: Options, found: Found, block: Block, encoded: Encoded, before: int, counts: _Counts
) -> None:
    """Refuse the first records that are not valid, or note them."""
    told = [(record_name(found.sources, block, before, flaw.place), flaw) for flaw in encoded.flaws]
    if not options.skip_errors:
        problems = [Problem(where, flaw.detail, SKIP_REMEDY) for where, flaw in told]
        more = sum(encoded.flaw_kinds.values()) - len(problems)
        if more:
            problems.append(Problem(f"{more:,} more records", "near these are not valid", SKIP_REMEDY))
        raise InvalidRecords(problems)
    room = FLAWS_TOLD - len(counts.flaws_told)
    counts.flaws_told += [f"{where} {flaw.detail}" for where, flaw in told[: max(room, 0)]]


class InvalidRecords(ConfigError):
    """Records that are not what they have to be, in the order of the input."""


def _empty(options: Options, counts: _Counts) -> DataError | None:
    """The error of a dataset without a token."""
    for key in options.keys:
        if not counts.tokens.get(key):
            seen = f"{counts.records:,} valid records"
            why = ", ".join(f"{count:,} {kind}" for kind, count in {**counts.skipped, **counts.flaws}.items())
            return BadData(
                str(options.dataset(key)),
                f"would hold no tokens, for the inputs have {seen}{f' ({why})' if why else ''}",
                "give files with text in them",
            )
    return None


def _record(
    options: Options, found: Found, tokenizer: Tokenizer, recipe: Recipe, counts: _Counts, key: str
) -> dict[str, Any]:
    """What PREFIX.json says of a dataset, but its checksums."""
    record = {
        "tokenizer": tokenizer.describe(),
        "eod": recipe.eod,
        "documents": counts.documents[key],
        "sequences": counts.sequences[key],
        "tokens": counts.tokens[key],
        "dtype": recipe.dtype.name,
        "level": options.level,
        "key": key,
        "sources": [{"path": source.path, "bytes": source.size} for source in found.sources],
        "skipped": {**counts.skipped, **counts.flaws},
        "bytes_of_text": counts.text_bytes[key],
    }
    if options.split_sentences:
        record["sentences_cut"] = counts.forced_cuts
    return record


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _unwritable(path: Path, error: OSError) -> DataError:
    reason = error.strerror or str(error)
    return DataError(
        f"{error.filename or path} cannot be written ({reason}): make room or choose another --out; "
        "no dataset was written, and the same command goes on from what is in "
        f"{path.name if path.name.endswith('.partial') else path.name + '.partial'}"
    )

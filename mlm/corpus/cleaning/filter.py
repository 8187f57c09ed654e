"""`mlm-data filter`: raw text in, the documents worth training on out, the same for any number of workers.

One pass reads, judges each document by itself and lays the survivors aside with the keys of their
signatures; then documents that share a key are compared, and the duplicates are taken out again.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mlm.corpus.cleaning.block import (
    EXAMPLES,
    Context,
    Judged,
    excerpt,
    judge_block,
    staged_shingles,
)
from mlm.corpus.cleaning.contamination import EvaluationSet
from mlm.corpus.cleaning.duplicates import (
    BYTES_PER_DOCUMENT,
    Duplicate,
    Indices,
    KeyFiles,
    buckets,
    copies,
    near_duplicates,
)
from mlm.corpus.cleaning.judge import Judge, Rules
from mlm.corpus.cleaning.ordered_pool import OrderedPool
from mlm.corpus.cleaning.shingles import Hashes
from mlm.corpus.cleaning.signatures import Bands
from mlm.corpus.cleaning.stage import Stage, read_staged
from mlm.corpus.reading.blocks import Block, Cursor, Cutting, cut_sources
from mlm.corpus.reading.inputs import Source
from mlm.corpus.reading.json_record import json_texts
from mlm.corpus.reading.records import record_name
from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.errors import ConfigError, Problem
from mlm.launch.limits import available_memory

# Invalid records shown before the run is refused; one is enough to stop, a few save trying again.
FLAWS_SHOWN = 10
# Documents whose shingles a worker computes at once: many are short.
DOCUMENTS_AT_ONCE = 64

Advance = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Job:
    """What is to be done. out: checked to be writable as a .jsonl, .jsonl.gz or .jsonl.zst by the caller."""

    sources: Sequence[Source]
    out: Path
    cutting: Cutting
    rules: Rules
    tokenizer: Tokenizer | None
    known: EvaluationSet | None
    workers: int
    skip_flaws: bool = False


@dataclass(frozen=True)
class Dropped:
    """A document that went, for a person to judge the rule by. detail and other depend on the reason."""

    where: str
    reason: str
    excerpt: str
    detail: str
    other: str = ""
    other_excerpt: str = ""


@dataclass
class Summary:
    """What came in, what went and why, what was kept. Bytes are of text; tokens 0 where nobody counted."""

    documents: int = 0
    bytes_read: int = 0
    invalid: dict[str, int] = field(default_factory=dict)
    blank: int = 0
    short: int = 0
    contaminated: int = 0
    copies: int = 0
    near_duplicates: int = 0
    changed: int = 0
    kept: int = 0
    tokens: int = 0
    kept_tokens: int = 0
    kept_bytes: int = 0
    out_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    examples: list[Dropped] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)


def run_filter(job: Job, advance: Advance) -> Summary:
    """Do it. advance: called with the bytes of input done so far, as they lie; bytes of text; a note.

    Raises ConfigError for invalid records (unless they are skipped), BadData where a file cannot be read or
    written or nothing is left; then there is no output.
    """
    stage = Stage(job.out)
    context = Context(job.sources, job.cutting, Judge(job.rules, job.tokenizer, job.known))
    run = None
    try:
        with OrderedPool(job.workers, context) as pool:
            run = _Run(job, stage, pool)
            run.judge(advance)
            dropped = run.duplicates() if job.rules.duplicates is not None else np.empty(0, dtype=np.int64)
        return run.finish(dropped)
    except OSError as error:
        wrong = f"cannot be written ({error.strerror})"
        raise BadData(str(job.out), wrong, "make room, or choose another --out") from None
    finally:
        if run is not None:
            run.close()
        stage.discard()


class _Run:
    """The state between the passes: a few numbers a document, nothing of its text."""

    def __init__(self, job: Job, stage: Stage, pool: OrderedPool[Context]):
        self.job, self.stage, self.pool = job, stage, pool
        self.summary = Summary()
        # Which block a staged document came from, and its number there: its name is made when it is shown.
        self._blocks: list[tuple[int, Block, int]] = []
        self._places = array("i")
        self._tokens, self._bytes = array("I"), array("q")
        self._sizes, self._prints = array("I"), bytearray()
        self._keys: KeyFiles | None = None

    def close(self) -> None:
        """Close what is open; of a full disk somebody has told by now."""
        if self._keys is not None:
            with suppress(OSError):
                self._keys.close()

    def judge(self, advance: Advance) -> None:
        """The first pass."""
        began = time.perf_counter()
        rules, sources = self.job.rules, self.job.sources
        if rules.duplicates is not None:
            self._keys = KeyFiles(self.stage.folder, Bands.for_threshold(rules.duplicates))
        ahead: list[Block] = []

        def blocks() -> Iterator[Block]:
            for block in cut_sources(sources, self.job.cutting, Cursor()):
                ahead.append(replace(block, data=None))
                yield block

        before, source, done = 0, -1, 0
        for judged in self.pool.map(judge_block, blocks()):
            block = ahead.pop(0)
            if block.source != source:
                before, source = 0, block.source
                done = sum(other.size or 0 for other in sources[:source])
            self._blocks.append((len(self._places), block, before))
            self._take(judged, block, before)
            if self._keys is not None:
                self._keys.append(judged.keys)
                self._check_memory()
            before += judged.units
            advance(done + block.consumed, judged.bytes_read, f"{len(self._places):,} kept so far")
        self.stage.flush()
        self.summary.seconds["reading and judging"] = time.perf_counter() - began

    def _take(self, judged: Judged, block: Block, before: int) -> None:
        total = self.summary
        total.documents += judged.documents
        total.bytes_read += judged.bytes_read
        total.blank += judged.blank
        total.short += judged.short
        total.contaminated += judged.contaminated
        total.changed += judged.changed
        total.tokens += judged.tokens
        named = [(record_name(self.job.sources, block, before, flaw.place), flaw) for flaw in judged.flaws]
        if named and not self.job.skip_flaws:
            remedy = "correct it, or leave such records out with --on-error skip"
            raise ConfigError([Problem(where, flaw.detail, remedy) for where, flaw in named[:FLAWS_SHOWN]])
        for where, flaw in named:
            total.invalid[flaw.kind] = total.invalid.get(flaw.kind, 0) + 1
            if len(total.flaws) < EXAMPLES:
                total.flaws.append(f"{where} {flaw.detail}")
        for example in judged.examples:
            where = record_name(self.job.sources, block, before, example.place)
            self._show(Dropped(where, example.reason, example.excerpt, example.detail, example.item))
        self._places.extend(judged.places)
        self._tokens.extend(judged.kept_tokens)
        self._bytes.extend(judged.text_bytes)
        self._sizes.extend(judged.sizes.tolist())
        self._prints += judged.prints
        self.stage.append(judged.lines)

    def _show(self, dropped: Dropped) -> None:
        shown = sum(other.reason == dropped.reason for other in self.summary.examples)
        if shown < EXAMPLES:
            self.summary.examples.append(dropped)

    def _check_memory(self) -> None:
        needed, free = len(self._places) * BYTES_PER_DOCUMENT, available_memory()
        if needed > free:
            amount = f"needs {needed / 1e9:.1f} GB for {len(self._places):,} documents"
            wrong = f"{amount}, and {free / 1e9:.1f} GB are free"
            raise BadData("--duplicates", wrong, "filter the input in parts, or with --duplicates off")

    def duplicates(self) -> Indices:
        """The numbers of staged documents that are too similar to earlier ones, sorted."""
        began = time.perf_counter()
        threshold = self.job.rules.duplicates
        assert threshold is not None, "only asked for with a threshold"
        assert self._keys is not None, "the first pass wrote keys"
        sizes = np.frombuffer(self._sizes, dtype=np.uint32)
        everyone = np.arange(len(sizes))
        first = copies(np.frombuffer(self._prints, dtype="V16"))
        first[sizes == 0] = everyone[sizes == 0]  # texts without a word are like no other
        chosen = np.flatnonzero((first == everyone) & (sizes > 0))
        shared = buckets(self._keys.read(), chosen)
        near = {d.document: d for d in near_duplicates(*shared, sizes, threshold, self._shingles)}
        copied = np.flatnonzero(first != everyone)
        dropped = np.union1d(copied, np.asarray(sorted(near), dtype=np.int64))
        self.summary.copies, self.summary.near_duplicates = len(copied), len(near)
        for document in dropped[:EXAMPLES].tolist():
            original = int(first[document])
            found = near.get(original, Duplicate(document, original, 1.0))
            self._show(self._pair(document, found.original, found.similarity))
        self.summary.seconds["comparing"] = time.perf_counter() - began
        return dropped

    def _pair(self, document: int, original: int, similarity: float) -> Dropped:
        lines = read_staged(str(self.stage.path), [self._span(document), self._span(original)])
        key = self.job.cutting.keys[0]
        mine, other = (excerpt(json_texts(line, [key])[0]) for line in lines)
        where, original_where = self._name(document), self._name(original)
        return Dropped(where, "duplicate", mine, f"{similarity:.4f}", original_where, other)

    def _shingles(self, documents: Indices) -> Iterator[Hashes]:
        spans = [self._span(document) for document in documents.tolist()]
        path = str(self.stage.path)
        jobs = [(path, spans[at : at + DOCUMENTS_AT_ONCE]) for at in range(0, len(spans), DOCUMENTS_AT_ONCE)]
        if len(jobs) == 1:
            yield from staged_shingles(self.pool.context, jobs[0])
            return
        for sets in self.pool.map(staged_shingles, jobs):
            yield from sets

    def _span(self, document: int) -> tuple[int, int]:
        return self.stage.ends[document], self.stage.ends[document + 1]

    def _name(self, document: int) -> str:
        at = bisect_right(self._blocks, document, key=lambda entry: entry[0]) - 1
        _, block, before = self._blocks[at]
        return record_name(self.job.sources, block, before, self._places[document])

    def finish(self, dropped: Indices) -> Summary:
        """Write the output. Raises BadData when no document is left."""
        began, total = time.perf_counter(), self.summary
        total.kept = len(self._places) - len(dropped)
        if not total.kept:
            raise BadData(str(self.job.out), f"would be empty: {reasons(total)}", "nothing was written")
        kept = np.ones(len(self._places), dtype=bool)
        kept[dropped] = False
        total.kept_tokens = int(np.frombuffer(self._tokens, dtype=np.uint32)[kept].sum(dtype=np.int64))
        total.kept_bytes = int(np.frombuffer(self._bytes, dtype=np.int64)[kept].sum())
        total.out_bytes = self.stage.finish(dropped)
        total.seconds["writing"] = time.perf_counter() - began
        return total


def reasons(total: Summary) -> str:
    """What became of the documents, in words."""
    parts = {
        "short": total.short,
        "contaminated": total.contaminated,
        "copies": total.copies,
        "near-duplicates": total.near_duplicates,
        "blank": total.blank,
        "invalid": sum(total.invalid.values()),
    }
    gone = ", ".join(f"{number:,} {name}" for name, number in parts.items() if number)
    return f"{total.documents:,} documents, of them {gone}" if gone else f"{total.documents:,} documents"

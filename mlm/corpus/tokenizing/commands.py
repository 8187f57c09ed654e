"""What `mlm-data tokenizer train` and `mlm-data tokenizer show` do and say."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence

from mlm.corpus.progress import TextProgress, time_text
from mlm.corpus.reading.blocks import Cutting
from mlm.corpus.reading.documents import documents
from mlm.corpus.reading.inputs import Found, find_sources
from mlm.corpus.reading.records import Flaw
from mlm.corpus.tokenizing.sampling import Sample
from mlm.corpus.tokenizing.training import REPORT_CHARACTERS, Recipe, problems, report, train_tokenizer
from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer, parse_tokenizer
from mlm.data.tokenizers.round_trip import RoundTrip
from mlm.errors import ConfigError

# Of a longer text so many tokens are shown, and the number of the others.
SHOWN_TOKENS = 400
WIDTH = 100
# Records that are not valid, named one by one; all are counted.
TOLD_RECORDS = 20
# Between two looks at the bar.
PROGRESS_BYTES = 1 << 20
_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "▁": "␣"}


def train(inputs: Sequence[str], key: str, recipe: Recipe, sample_characters: int, skip_flawed: bool) -> int:
    """Read the inputs, train, write, and print what came out. Raises ConfigError or BadData.

    key: of the text in JSON and Parquet. skip_flawed: pass over records that are not valid, and count them.
    """
    found = problems(recipe)
    try:
        sources = find_sources(inputs)
    except ConfigError as error:
        found += error.problems
    if found:
        raise ConfigError(found)
    for path in sources.passed_over:
        print(f"not read, of no known kind: {path}", file=sys.stderr)

    sample = _read(sources, key, sample_characters, skip_flawed)
    share = "all of them" if sample.is_all else "stretches of 2,000 from all over the text"
    print(f"sample    {sample.characters:,} characters, {share}", flush=True)
    started_s = time.monotonic()
    tokenizer = train_tokenizer(sample, recipe)
    print(f"trained   {tokenizer.name} in {time_text(time.monotonic() - started_s)}")
    counts = report(tokenizer, sample)
    beginning = "" if counts.characters < REPORT_CHARACTERS else f" (first {counts.characters:,} characters)"
    print(f"size      {counts.bytes_per_token:.3f} bytes per token{beginning}")
    print(f"exact     {counts.sentence()}")
    if tokenizer.special.get("unk") is not None:
        print(f"unknown   {counts.unknown_sentence()}")
    print(f"use it    --tokenizer {tokenizer.kind}:{recipe.out}")
    training = f"tokenizer={tokenizer.kind} tokenizer.path={recipe.out}"
    size = f"model.vocab_size={tokenizer.vocab_size} model.padded_vocab_size=null"
    print(f"          mlm-train {training} {size}")
    return 0


def _read(found: Found, key: str, limit: int, skip_flawed: bool) -> Sample:
    """A sample of all documents, with a line about them printed."""
    started_s = time.monotonic()
    sample, skipped = Sample(limit), Counter[str]()

    def on_flaw(where: str, flaw: Flaw) -> None:
        skipped[flaw.kind] += 1
        if skipped.total() <= TOLD_RECORDS:
            print(f"skipped: {where} {flaw.detail}", file=sys.stderr)

    number = finished = unsaid = 0
    cutting = Cutting(keys=(key,), text_unit="paragraph")
    with TextProgress("reading", found.size) as progress:
        for source in found.sources:
            # Paragraphs of a text file are joined again as they were, so that blank lines are learned too.
            tail, done = "\n\n" if source.format == "txt" else "", finished
            for document in documents([source], cutting, on_flaw if skip_flawed else None):
                text = document.texts[0] + tail
                sample.add(text)
                number, unsaid = number + 1, unsaid + len(text.encode())
                if unsaid >= PROGRESS_BYTES:
                    done += 0 if source.compression else unsaid
                    progress.update(done, unsaid, f"{number:,} documents")
                    unsaid = 0
            finished += source.size or 0
    took = time_text(time.monotonic() - started_s)
    print(f"read      {number:,} documents, {sample.read_characters:,} characters in {took}")
    if skipped:
        print(f"skipped   {', '.join(f'{count:,} {kind}' for kind, count in skipped.most_common())}")
    return sample


def show(spec: str, text: str | None) -> int:
    """Print what a tokenizer is and what it makes of a text (`-`: of standard input). Raises BadData."""
    tokenizer = parse_tokenizer(spec, option="")
    special = ", ".join(f"{name} {number}" for name, number in tokenizer.special.items())
    print(f"kind         {tokenizer.name}")
    print(f"special      {special or 'none'}")
    print(f"exact        {'every text comes back' if tokenizer.lossless else f'no: {tokenizer.loss}'}")
    print(f"fingerprint  {tokenizer.fingerprint}")
    if text is None:
        return 0
    if text == "-":
        text = _standard_input()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadData("TEXT", "is not UTF-8", "give it on standard input as UTF-8: -") from None
    counts = RoundTrip()
    counts.add(tokenizer, text)
    print(f"text         {counts.tokens:,} tokens, {counts.bytes:,} bytes, {counts.bytes_per_token:.3f} each")
    print(f"round trip   {counts.sentence()}")
    if tokenizer.special.get("unk") is not None:
        print(f"unknown      {counts.unknown_sentence()}")
    print()
    print("\n".join(_table(tokenizer, text)))
    return 0


def visible(piece: str) -> str:
    """A piece with its white space and control characters as signs; ▁, SentencePiece's space, as a space."""
    return "".join(_VISIBLE.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in piece)


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        wrong = f"is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start:,}"
        raise BadData("standard input", wrong, "convert it, for instance with iconv") from None


def _table(tokenizer: Tokenizer, text: str) -> list[str]:
    """Lines of pieces over their ids, in columns as wide as the wider of the two."""
    ids = tokenizer.encode(text).tolist()
    lines: list[str] = []
    pieces, numbers = "", ""
    for token in ids[:SHOWN_TOKENS]:
        piece, number = visible(tokenizer.piece(token)), str(token)
        width = max(_columns(piece), len(number)) + 1
        if _columns(pieces) + width > WIDTH:
            lines += [pieces.rstrip(), numbers.rstrip()]
            pieces, numbers = "", ""
        pieces += piece + " " * (width - _columns(piece))
        numbers += number.ljust(width)
    lines += [pieces.rstrip(), numbers.rstrip()]
    if len(ids) > SHOWN_TOKENS:
        lines.append(f"and {len(ids) - SHOWN_TOKENS:,} more")
    return lines


def _columns(text: str) -> int:
    """Columns that a terminal gives a text: two to wide characters, none to marks on others."""
    from rich.cells import cell_len

    return cell_len(text)

"""mlm-data prepare as a user meets it: its arguments, its messages, its summary."""

from __future__ import annotations

import argparse
import sys

from mlm.corpus.preparing.options import Options
from mlm.corpus.preparing.partial import partial_folder
from mlm.corpus.preparing.prepare import InvalidRecords, Outcome, prepare
from mlm.corpus.progress import size_text, time_text
from mlm.launch.refusal import EXIT_REFUSED

# A rate measured on less says nothing.
RATE_FROM_BYTES = 10_000_000


def prepare_command(args: argparse.Namespace) -> int:
    """Run it; returns the exit code. Raises MlmError."""
    options = Options(
        inputs=tuple(args.inputs),
        prefix=args.out.expanduser().absolute(),
        tokenizer=args.tokenizer,
        keys=tuple(args.json_keys.split(",")),
        eod=args.eod,
        split_sentences=args.split_sentences,
        max_sentence_characters=args.max_sentence_characters,
        text_unit=args.text_unit,
        stdin_format=args.stdin_format,
        max_document_bytes=args.max_document_bytes,
        skip_errors=args.on_error == "skip",
        workers=args.workers,
        overwrite=args.overwrite,
        engine=args.engine,
    )
    try:
        outcome = prepare(options, _say)
    except InvalidRecords as error:
        print(_invalid(error), file=sys.stderr, flush=True)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        folder = partial_folder(options.prefix)
        if folder.exists():
            _say(f"stopped; the same command goes on from what is in {folder}")
        raise
    print(summary(options, outcome))
    return 0


def _invalid(error: InvalidRecords) -> str:
    lines = [f"  {problem.where} {problem.wrong}" for problem in error.problems]
    head = "mlm-data prepare: invalid records, no dataset was written"
    return "\n".join([head, *lines, f"    -> {error.problems[0].remedy}"])


def _say(line: str) -> None:
    print(f"mlm-data prepare: {line}", file=sys.stderr, flush=True)


def summary(options: Options, outcome: Outcome) -> str:
    """What was written, what was left out and why, and how fast it went."""
    lines = []
    for key, part in outcome.parts.items():
        lines.append(f"{options.dataset(key)}.bin, .idx and .json")
        rows = [("documents", f"{part['documents']:,}")]
        if part["level"] == "sentence":
            rows.append(("sentences", f"{part['sequences']:,}"))
        rows.append(("tokens", f"{part['tokens']:,} ({part['dtype']})"))
        rows.append(
            ("text", f"{size_text(part['bytes_of_text'])}, {bytes_per_token(part):.2f} bytes a token")
        )
        lines += [f"  {name:10} {value}" for name, value in rows]
    files = f"{outcome.files:,} file{'s' if outcome.files != 1 else ''}"
    lines.append(f"read       {outcome.records:,} valid records of {files}")
    lines.append(f"skipped    {_listed(outcome.skipped) or 'none'}")
    if invalid := sum(outcome.flaws.values()):
        lines.append(f"invalid    {invalid:,}, left out: {_listed(outcome.flaws)}")
        lines += [f"  {line}" for line in outcome.flaws_told]
        if invalid > len(outcome.flaws_told):
            lines.append(f"  and {invalid - len(outcome.flaws_told):,} more")
    if outcome.forced_cuts:
        longest = options.max_sentence_characters
        lines.append(
            f"cut        {outcome.forced_cuts:,} times inside a sentence longer than {longest:,} characters"
        )
    if outcome.passed_over:
        names = ", ".join(outcome.passed_over[:5])
        more = f" and {len(outcome.passed_over) - 5:,} more" if len(outcome.passed_over) > 5 else ""
        lines.append(f"not read   {names}{more} (of no known kind)")
    rate = ""
    if outcome.text_bytes_read > RATE_FROM_BYTES:
        rate = f" at {outcome.text_bytes_read / outcome.encoding_s / 1e6:.1f} MB/s"
    workers = f"{outcome.workers} worker{'s' if outcome.workers != 1 else ''}, {outcome.engine}"
    lines.append(
        f"time       {time_text(outcome.encoding_s)}{rate} ({workers}), "
        f"start-up {time_text(outcome.startup_s)}, finishing {time_text(outcome.finishing_s)}"
    )
    return "\n".join(lines)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def bytes_per_token(part: dict[str, int]) -> float:
    return part["bytes_of_text"] / part["tokens"]

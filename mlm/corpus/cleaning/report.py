"""What `mlm-data filter` did, for the console, as JSON, and as one HTML page with examples."""

from __future__ import annotations

import dataclasses
import html
import json
from pathlib import Path
from typing import Any

from mlm.corpus.cleaning.filter import Dropped, Job, Summary
from mlm.corpus.cleaning.newlines import RULE
from mlm.corpus.cleaning.signatures import Bands
from mlm.data.bad_data import BadData
from mlm.files import write_whole

SUFFIXES = (".html", ".json")
"""What a report may be called."""

_STYLE = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { border-bottom: 1px solid #8884; padding: .3em .8em .3em 0; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font-size: .9em; overflow-wrap: anywhere; }
small { opacity: .75; }
"""


def rules_in_words(job: Job) -> dict[str, str]:
    """The rules that were on, each in a sentence."""
    rules, found = job.rules, {}
    if rules.fix_newlines:
        found["newlines"] = RULE
    if rules.min_tokens and job.tokenizer is not None:
        found["short"] = f"fewer than {rules.min_tokens:,} tokens of the tokenizer {job.tokenizer.kind}"
    if job.known is not None:
        known = job.known
        found["contaminated"] = (
            f"a run of {known.n} words (or {2 * known.n} characters where there are no spaces) of one of "
            f"{known.items:,} evaluation texts; {known.short:,} of these are shorter and were not sought"
        )
    if rules.duplicates is not None:
        bands = Bands.for_threshold(rules.duplicates)
        n, missed = rules.shingle, bands.missed(rules.duplicates)
        found["duplicate"] = (
            f"Jaccard similarity above {rules.duplicates:g} with an earlier document that is kept, of their "
            f"sets of runs of {n} words (or characters); exact, among candidates that share one of "
            f"{bands.count} bands of {bands.rows} MinHash values, so that a pair right at the threshold is "
            f"missed with p = {missed:.1g}"
        )
    return found


def console(job: Job, total: Summary) -> str:
    """The summary as lines."""
    rules, counted = job.rules, job.tokenizer is not None
    gone: list[tuple[str, int]] = [
        (f"under {rules.min_tokens:,} tokens", total.short),
        ("in an evaluation set", total.contaminated),
        ("copies of another", total.copies),
        (f"similar to another (Jaccard > {rules.duplicates})", total.near_duplicates),
        ("blank", total.blank),
        *((f"invalid: {kind}", number) for kind, number in sorted(total.invalid.items())),
    ]
    lines = [f"{'documents read':44}{total.documents + sum(total.invalid.values()):>15,}"]
    lines += [f"  {what:42}{number:>15,}" for what, number in gone if number]
    share = f"{100 * total.kept / max(total.documents, 1):.1f} %"
    lines.append(f"{'documents kept':44}{total.kept:>15,}  {share}")
    if counted:
        lines.append(f"{'tokens kept':44}{total.kept_tokens:>15,}  of {total.tokens:,}")
    lines.append(f"{'bytes of text kept':44}{total.kept_bytes:>15,}")
    if rules.fix_newlines:
        lines.append(f"{'kept documents with newlines fixed':44}{total.changed:>15,}")
    lines.append(f"{job.out!s:44}{total.out_bytes:>15,}  bytes")
    seconds = sum(total.seconds.values())
    steps = ", ".join(f"{name} {took:.1f} s" for name, took in total.seconds.items())
    lines.append(f"{total.bytes_read / 1e6 / max(seconds, 1e-9):.1f} MB/s: {steps}")
    return "\n".join(lines)


def as_json(job: Job, total: Summary) -> dict[str, Any]:
    """Everything that is known of the run, as JSON values."""
    return {
        "out": str(job.out),
        "sources": [{"path": source.path, "bytes": source.size} for source in job.sources],
        "rules": rules_in_words(job),
        **dataclasses.asdict(total),
    }


def write_report(path: Path, job: Job, total: Summary) -> None:
    """Write FILE.json or FILE.html, whole or not at all. Raises BadData when it cannot be written."""
    is_json = path.name.endswith(".json")
    text = json.dumps(as_json(job, total), ensure_ascii=False, indent=1) if is_json else page(job, total)
    try:
        write_whole(path, f"{text}\n")
    except OSError as error:
        raise BadData(f"--report {path}", f"cannot be written ({error.strerror})", "choose another") from None


def page(job: Job, total: Summary) -> str:
    """One HTML page that needs nothing beside it."""
    words = rules_in_words(job)
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_text(job.out.name)}</title>",
        f"<style>{_STYLE}</style><h1>What was left out of <code>{_text(job.out.name)}</code></h1>",
        f"<table>{''.join(map(_row, console(job, total).splitlines()[:-1]))}</table>",
        "<h2>Rules</h2><table>",
        *(f"<tr><th>{_text(name)}<td>{_text(rule)}" for name, rule in words.items()),
        "</table>",
    ]
    for reason in ("short", "contaminated", "duplicate"):
        examples = [example for example in total.examples if example.reason == reason]
        if examples:
            parts.append(f"<h2>{_text(reason.capitalize())}: the first {len(examples)}</h2><table>")
            parts += [_example(example) for example in examples]
            parts.append("</table>")
    if total.flaws:
        parts.append(f"<h2>Invalid: the first {len(total.flaws)}</h2>")
        parts += [f"<p><code>{_text(flaw)}</code>" for flaw in total.flaws]
    return "\n".join(parts)


def _row(line: str) -> str:
    name, number, rest = line[:44], line[44:59], line[59:]
    return f"<tr><td>{_text(name.strip())}<td class=number>{_text(number.strip())}<td>{_text(rest.strip())}"


def _example(example: Dropped) -> str:
    mine = f"<small><code>{_text(example.where)}</code></small><br>{_text(example.excerpt)}"
    if example.reason == "short":
        return f"<tr><td class=number>{_text(example.detail)}<td>{mine}"
    if example.reason == "contaminated":
        found = f"{_text(example.detail)}<br><small><code>{_text(example.other)}</code></small>"
        return f"<tr><td>{found}<td>{mine}"
    other = f"<small><code>{_text(example.other)}</code></small><br>{_text(example.other_excerpt)}"
    return f"<tr><td class=number>{_text(example.detail)}<td>{mine}<td>{other}"


def _text(value: str) -> str:
    return html.escape(value.encode("utf-8", "replace").decode())

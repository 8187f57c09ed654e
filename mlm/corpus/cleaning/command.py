"""From what was typed after `mlm-data filter` to its output: every problem at once, then the work."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path

from mlm.corpus.cleaning.contamination import EvaluationSet
from mlm.corpus.cleaning.evaluation_texts import evaluation_set
from mlm.corpus.cleaning.filter import Job, run_filter
from mlm.corpus.cleaning.judge import Rules
from mlm.corpus.cleaning.report import SUFFIXES as REPORTS
from mlm.corpus.cleaning.report import console, write_report
from mlm.corpus.cleaning.stage import SUFFIXES
from mlm.corpus.progress import TextProgress
from mlm.corpus.reading.blocks import Cutting
from mlm.corpus.reading.inputs import Found, find_sources
from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer, parse_tokenizer
from mlm.errors import ConfigError, Problem
from mlm.launch.limits import usable_cores

# Below it, starting processes takes longer than the work.
BYTES_FOR_WORKERS = 4 << 20


@dataclass(frozen=True)
class Asked:
    """The arguments as typed."""

    inputs: list[str]
    out: Path
    min_tokens: int
    tokenizer: str
    duplicates: str
    against: list[str]
    ngram: int
    fix_newlines: bool
    report: Path | None
    json_key: str
    text_unit: str
    stdin_format: str
    on_error: str
    max_document_bytes: int
    workers: int | None
    overwrite: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> Asked:
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})


def filter_command(args: argparse.Namespace) -> int:
    """Run it and print the summary. Raises ConfigError before anything is written, BadData on the way."""
    asked = Asked.of(args)
    problems: list[Problem] = [*_output_problems(asked), *_number_problems(asked)]
    found, tokenizer, known = Found(), None, None
    try:
        found = find_sources(asked.inputs, asked.stdin_format)
    except ConfigError as error:
        problems += error.problems
    try:
        tokenizer = parse_tokenizer(asked.tokenizer) if asked.min_tokens > 0 else None
    except BadData as error:
        problems.append(error.problem)
    try:
        known = evaluation_set(asked.against, asked.ngram) if asked.against and asked.ngram > 0 else None
    except ConfigError as error:
        problems += error.problems
    except BadData as error:
        problems.append(error.problem)
    problems += [*_same_file(asked, found), *_library_problems(asked)]
    if problems:
        raise ConfigError(problems)
    if found.passed_over:
        print(f"passed over, of no known kind: {len(found.passed_over):,} files", file=sys.stderr)
    job = _job(asked, found, tokenizer, known)
    with TextProgress("filter", found.size) as progress:
        total = run_filter(job, progress.update)
    print(console(job, total))
    if asked.report:
        write_report(asked.report, job, total)
    return 0


def _job(asked: Asked, found: Found, tokenizer: Tokenizer | None, known: EvaluationSet | None) -> Job:
    small = found.size is not None and found.size < BYTES_FOR_WORKERS
    return Job(
        sources=found.sources,
        out=asked.out.expanduser().absolute(),
        cutting=Cutting((asked.json_key,), asked.text_unit, asked.max_document_bytes),
        rules=Rules(asked.min_tokens, _threshold(asked.duplicates), fix_newlines=asked.fix_newlines),
        tokenizer=tokenizer,
        known=known,
        workers=1 if small else asked.workers or usable_cores(),
        skip_flaws=asked.on_error == "skip",
    )


def _output_problems(asked: Asked) -> list[Problem]:
    found = []
    if not asked.out.name.endswith(SUFFIXES):
        found.append(Problem(f"--out {asked.out}", "has an unknown suffix", f"use {', '.join(SUFFIXES)}"))
    elif asked.out.is_dir():
        found.append(Problem(f"--out {asked.out}", "is a folder", "name a file in it"))
    elif asked.out.exists() and not asked.overwrite:
        found.append(Problem(f"--out {asked.out}", "is there already", "name another, or add --overwrite"))
    if asked.report and not asked.report.name.endswith(REPORTS):
        found.append(
            Problem(f"--report {asked.report}", "has an unknown suffix", f"use {' or '.join(REPORTS)}")
        )
    if asked.report and not asked.report.expanduser().absolute().parent.is_dir():
        found.append(Problem(f"--report {asked.report}", "is in a folder that is not there", "make it first"))
    return found


def _number_problems(asked: Asked) -> list[Problem]:
    found = []
    try:
        threshold = _threshold(asked.duplicates)
        is_right = threshold is None or 0 < threshold < 1
    except ValueError:
        is_right = False
    if not is_right:
        wrong = "is no similarity between 0 and 1"
        found.append(Problem(f"--duplicates {asked.duplicates}", wrong, "use 0.7, as the paper, or off"))
    least = {"--min-tokens": 0, "--ngram": 1, "--workers": 1, "--max-document-bytes": 1}
    for name, limit in least.items():
        value = getattr(asked, name.removeprefix("--").replace("-", "_"))
        if value is not None and value < limit:
            found.append(Problem(f"{name} {value}", f"is less than {limit}", f"use {limit} or more"))
    return found


def _library_problems(asked: Asked) -> list[Problem]:
    if asked.duplicates == "off" or find_spec("rensa") is not None:
        return []
    remedy = "pip install 'mlm[data]', or use --duplicates off"
    return [Problem(f"--duplicates {asked.duplicates}", "needs rensa, which is not installed", remedy)]


def _threshold(typed: str) -> float | None:
    return None if typed == "off" else float(typed)


def _same_file(asked: Asked, found: Found) -> list[Problem]:
    """Reading from what is being replaced would lose both."""
    out = asked.out.expanduser()
    if not out.exists():
        return []
    same = [source for source in found.sources if source.path != "-" and out.samefile(source.path)]
    return [Problem(f"--out {asked.out}", f"is the input {s.path}", "name another file") for s in same]

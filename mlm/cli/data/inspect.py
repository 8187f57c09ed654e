"""mlm-data inspect."""

from __future__ import annotations

import argparse
import contextlib
import math
from pathlib import Path

from mlm.errors import ConfigError, Problem

DESCRIPTION = """\
What a token dataset holds: sizes, the tokenizer that made it, lengths of documents and use of the vocabulary;
or one document, or one sample, as text. Numbers below 0 count from the end."""
EXAMPLES = """\
  mlm-data inspect data/wiki_text_document
  mlm-data inspect data/wiki_text_document --doc -1
  mlm-data inspect data/wiki_text_document --sample 0 --seq-length 1024
  mlm-data inspect data/wiki_text_document --sample 0 --seq-length 1024 --seed 1234 --split 969,30,1
  mlm-data inspect others/pile --tokenizer hf:tokenizer.json --doc 7"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefix", metavar="PREFIX", type=Path, help="PREFIX of a .bin/.idx pair")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--doc", type=int, metavar="N", help="document N")
    one.add_argument(
        "--sample", type=int, metavar="N", help="sample N, in the file's order unless --seed is given"
    )
    parser.add_argument("--seq-length", type=int, metavar="S", help="inputs of a sample: it is S + 1 tokens")
    parser.add_argument(
        "--seed", type=int, metavar="SEED", help="sample N as mlm-train draws it with this seed"
    )
    parser.add_argument(
        "--split", metavar="SHARES", help="data.split of that run, by default 969,30,1; only with --seed"
    )
    parser.add_argument(
        "--no-shuffle-documents",
        action="store_true",
        help="as data.shuffle_documents=false; only with --seed",
    )
    parser.add_argument("--tokenizer", metavar="TOKENIZER", help="what shows text where none is recorded")


def run(args: argparse.Namespace) -> int:
    if problems := _problems(args):
        raise ConfigError(problems)
    from mlm.corpus.datasets.inspect import Inspected

    inspected = Inspected(args.prefix, args.tokenizer)
    if args.doc is not None:
        lines = inspected.document(args.doc)
    elif args.sample is None:
        lines = inspected.overview()
    elif args.seed is None:
        lines = inspected.window(args.sample, args.seq_length)
    else:
        lines = inspected.training_sample(
            args.sample,
            args.seq_length,
            args.seed,
            _shares(args.split or "969,30,1"),
            not args.no_shuffle_documents,
        )
    for line in lines:
        print(line)
    return 0


def _problems(args: argparse.Namespace) -> list[Problem]:
    problems = []
    if args.sample is not None and args.seq_length is None:
        problems.append(Problem("--sample", "has no length", "give --seq-length, as --seq-length 1024"))
    if args.seq_length is not None and args.sample is None:
        problems.append(Problem(f"--seq-length {args.seq_length}", "is for --sample", "give --sample N"))
    if args.seq_length is not None and args.seq_length < 1:
        problems.append(
            Problem(f"--seq-length {args.seq_length}", "is not at least 1", "use 1024, or another")
        )
    if args.seed is None and (args.split or args.no_shuffle_documents):
        remedy = "give --seed as well: samples in the file's order are of the whole dataset"
        problems.append(Problem("--split or --no-shuffle-documents", "says how training samples", remedy))
    if args.seed is not None and args.sample is None:
        problems.append(Problem(f"--seed {args.seed}", "is for --sample", "give --sample N --seq-length S"))
    if args.seed is not None and args.sample is not None and args.sample < 0:
        wrong = "is below 0, and training samples have no end to count from"
        problems.append(Problem(f"--sample {args.sample}", wrong, "use a number from 0"))
    return problems


def _shares(typed: str) -> list[float]:
    shares = []
    for word in typed.split(","):
        shares.append(math.nan)
        with contextlib.suppress(ValueError):
            shares[-1] = float(word)
    if any(math.isnan(share) for share in shares):
        raise ConfigError(Problem(f"--split {typed}", "is no list of numbers", "write it as 969,30,1"))
    return shares

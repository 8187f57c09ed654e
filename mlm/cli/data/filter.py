"""mlm-data filter: drop short, duplicate and contaminated documents."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Keep the documents worth training on, as the paper did: those of 128 tokens or more, of near-duplicates
(Jaccard similarity above 0.7) the first, and with --against none that overlaps an evaluation set. Records are
written as they came, one JSON object a line. The output is the same for any number of workers, and it is
there only when it is complete."""
EXAMPLES = """\
  mlm-data filter texts/ --out clean.jsonl.zst --against wikitext103 lambada --report clean.html
  mlm-data filter a.jsonl b.parquet --out clean.jsonl --fix-newlines
  mlm-data filter ja/*.jsonl --out ja.jsonl --tokenizer sentencepiece:ja.model --min-tokens 64
  mlm-data filter a.jsonl --out once.jsonl --min-tokens 0 --duplicates 0.9     only near-duplicates
  zcat pile.jsonl.gz | mlm-data filter - --out long.jsonl --duplicates off     only short documents"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("inputs", nargs="+", metavar="INPUT", help=".jsonl, .json, .txt, .parquet, also .gz .zst .bz2 .xz; "
        "folders, patterns, - for standard input")  # fmt: skip
    add("--out", type=Path, required=True, metavar="FILE", help=".jsonl, .jsonl.gz or .jsonl.zst")
    add("--min-tokens", type=int, default=128, metavar="N",
        help="shorter documents go (default 128; 0: none, and nothing is counted)")  # fmt: skip
    add("--tokenizer", default="gpt2", help="what counts tokens (default gpt2); as in prepare")
    add("--duplicates", default="0.7", metavar="J",
        help="documents more similar than this to an earlier one go (default 0.7), or off")  # fmt: skip
    add("--against", nargs="+", default=[], metavar="SET",
        help="evaluation sets, by name (wikitext103, lambada) or as files: what overlaps goes")  # fmt: skip
    add("--ngram", type=int, default=13, metavar="N", help="words of an overlap (default 13)")
    add("--fix-newlines", action="store_true", help="one kind of line end, no runs of blank lines")
    add("--report", type=Path, metavar="FILE", help=".html or .json: what went, with examples")
    add("--json-key", default="text", metavar="KEY", help="where a record has its text (default text)")
    add("--text-unit", choices=("file", "paragraph", "line"), default="file",
        help="what a document of a .txt file is (default file)")  # fmt: skip
    add("--stdin-format", choices=("jsonl", "json", "txt"), default="jsonl", help="what comes through -")
    add("--on-error", choices=("refuse", "skip"), default="refuse",
        help="records that are not valid: stop (default), or leave out, count and list")  # fmt: skip
    add("--max-document-bytes", type=int, default=256 << 20, metavar="N", help="longer records are not valid")
    add("--workers", type=int, metavar="N", help="processes (default: one a core)")
    add("--overwrite", action="store_true", help="replace the output if it is there")


def run(args: argparse.Namespace) -> int:
    from mlm.corpus.cleaning.command import filter_command

    return filter_command(args)

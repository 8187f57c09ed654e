"""mlm-data prepare: text, JSONL or Parquet to PREFIX_text_document.bin and .idx."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Encode documents as token datasets, PREFIX_text_document.bin and .idx (and .json, which says how they were
made). Inputs are files, folders (read recursively), patterns, or - for standard input: .jsonl .ndjson .json
.txt .parquet, each (but Parquet) also with .gz .zst .bz2 .xz. The result does not depend on --workers. A run
that was ended goes on when the same command is given again; there is no dataset before it is complete."""
EXAMPLES = """\
  mlm-data prepare texts/ --out data/mine                       every known file below texts/
  mlm-data prepare pile/*.jsonl.zst --out data/pile --json-keys text,title
  mlm-data prepare wiki.parquet --out data/wiki --tokenizer sentencepiece:wiki.model
  mlm-data prepare ja/ --out data/ja --tokenizer wordpiece:vocab.txt --split-sentences
  zcat dump.jsonl.gz | mlm-data prepare - --out data/dump --on-error skip"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("inputs", nargs="+", metavar="INPUT", help="files, folders, patterns, or - for standard input")
    add(
        "--out", type=Path, required=True, metavar="PREFIX", help="where the datasets go: PREFIX_KEY_document"
    )
    add("--tokenizer", default="gpt2", metavar="NAME",
        help="gpt2 (default), wordpiece, byte, gpt2:DIR, wordpiece:FILE, sentencepiece:FILE, hf:FILE, or "
             "the file alone")  # fmt: skip
    add("--json-keys", default="text", metavar="A,B",
        help="keys or columns that hold texts, a dataset each (default text)")  # fmt: skip
    add("--eod", action=argparse.BooleanOptionalAction, default=None,
        help="end documents with the tokenizer's id for that (default: but for sentences)")  # fmt: skip
    add("--split-sentences", action="store_true",
        help="a sequence per sentence, for BERT: PREFIX_KEY_sentence")  # fmt: skip
    add("--max-sentence-characters", type=int, default=2_000, metavar="N",
        help="longer sentences are cut, and counted (default 2000)")  # fmt: skip
    add("--text-unit", choices=("file", "paragraph", "line"), default="file",
        help="what a document of .txt is (default file; blank lines part paragraphs)")  # fmt: skip
    add("--stdin-format", choices=("jsonl", "json", "txt"), default="jsonl", help="what comes through -")
    add("--on-error", choices=("refuse", "skip"), default="refuse",
        help="records that are not valid: stop (default), or leave out, count and list")  # fmt: skip
    add("--max-document-bytes", type=int, default=256 << 20, metavar="N",
        help="longer records are not valid; bounds the memory of a worker (default 256 MiB)")  # fmt: skip
    add("--workers", type=int, metavar="N", help="processes that encode (default: one a core)")
    add("--overwrite", action="store_true", help="replace the datasets if they are there")
    add("--engine", choices=("gigatoken", "tiktoken", "tokenizers"),
        help="library for gpt2 (default: the fastest that is installed; the ids are the same)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from mlm.corpus.preparing.command import prepare_command

    return prepare_command(args)

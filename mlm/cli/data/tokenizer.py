"""mlm-data tokenizer train, mlm-data tokenizer show."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlm.corpus.tokenizing.training import KINDS, MODEL_TYPES, SAMPLE_CHARACTERS
from mlm.data.tokenizers import SPECS
from mlm.errors import ConfigError, Problem

LEAST_SAMPLE = 10_000

DESCRIPTION = """\
Train a tokenizer that gives every text back exactly, or show what a tokenizer is and what it makes of a text.
`mlm-data tokenizer train --help` and `mlm-data tokenizer show --help` say more."""
EXAMPLES = """\
  mlm-data tokenizer train texts/ --vocab-size 32000 --out ja.model
  mlm-data tokenizer show sentencepiece:ja.model '吾輩は猫である。'"""
_TRAIN_EXAMPLES = """\
examples:
  mlm-data tokenizer train texts/*.jsonl.zst --vocab-size 32000 --out mine.model
  mlm-data tokenizer train ja/ --model-type bpe --vocab-size 32000 --out ja.model --control '[CLS],[SEP]'
  mlm-data tokenizer train texts/ --kind bpe --vocab-size 50257 --out mine_bpe
  mlm-data prepare texts/*.jsonl.zst --tokenizer sentencepiece:mine.model --out data/mine"""
_SHOW_EXAMPLES = """\
examples:
  mlm-data tokenizer show gpt2 'Hello  world'
  mlm-data tokenizer show wordpiece:bert/vocab.txt - < page.txt"""


_TRAINING = """\
Train on the texts of files, folders, patterns or standard input (-), in the formats of mlm-data prepare:
.jsonl, .json, .txt, .parquet, also compressed. What is trained gives every text back exactly, white space,
rare characters and all: nothing is normalised, and what has no piece of its own goes through its bytes.

sentencepiece writes a .model file, bpe (GPT-2's byte-level BPE) a folder of vocab.json and merges.txt. Memory
is bounded: of a text longer than --sample-characters, stretches from all over it are trained on. The same
inputs give the same bytes."""
_SHOWING = """\
Show kind, size, special ids and fingerprint of a tokenizer, whether every text comes back from its ids, and
what it makes of a text: pieces (a space shows as ␣, a line end as ⏎) over their ids, and what is lost."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    form = argparse.RawDescriptionHelpFormatter
    _train_arguments(
        actions.add_parser(
            "train",
            help="train a tokenizer on texts",
            description=_TRAINING,
            epilog=_TRAIN_EXAMPLES,
            formatter_class=form,
            allow_abbrev=False,
        )
    )
    show = actions.add_parser(
        "show",
        help="what a tokenizer is, and what it makes of a text",
        description=_SHOWING,
        epilog=_SHOW_EXAMPLES,
        formatter_class=form,
        allow_abbrev=False,
    )
    show.add_argument("tokenizer", metavar="TOKENIZER", help=f"one of {', '.join(SPECS)}")
    show.add_argument(
        "text", nargs="?", metavar="TEXT", help="a text to encode; - reads it from standard input"
    )


def _train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="file, folder, pattern or -")
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="FILE.model, or DIR for bpe")
    parser.add_argument(
        "--vocab-size", type=int, required=True, metavar="N", help="tokens, special ones included"
    )
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help="default: %(default)s")
    parser.add_argument(
        "--model-type", choices=MODEL_TYPES, help=f"of sentencepiece; default: {MODEL_TYPES[0]}"
    )
    parser.add_argument(
        "--character-coverage",
        type=float,
        metavar="SHARE",
        help="of sentencepiece: share of the text whose characters get pieces of their own; default: 0.9995",
    )
    parser.add_argument(
        "--byte-fallback",
        action=argparse.BooleanOptionalAction,
        help="of sentencepiece: encode other characters as their bytes (default) rather than as <unk>",
    )
    parser.add_argument(
        "--control",
        default="",
        metavar="NAMES",
        help="further control tokens, ids that no text gives: '[CLS],[SEP],[MASK],[PAD]'",
    )
    parser.add_argument("--json-key", default="text", metavar="KEY", help="of the text; default: %(default)s")
    parser.add_argument(
        "--on-error",
        choices=("refuse", "skip"),
        default="refuse",
        help="what becomes of a record that is not valid; default: %(default)s",
    )
    parser.add_argument(
        "--sample-characters",
        type=_characters,
        default=SAMPLE_CHARACTERS,
        metavar="N",
        help=f"most characters to train on, each about 50 bytes of memory; default: {SAMPLE_CHARACTERS:,}",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what --out holds")


def run(args: argparse.Namespace) -> int:
    from mlm.corpus.tokenizing import commands as tokenizer_commands
    from mlm.corpus.tokenizing.training import Recipe

    if args.action == "show":
        return tokenizer_commands.show(args.tokenizer, args.text)
    of_sentencepiece = {
        "model_type": args.model_type,
        "character_coverage": args.character_coverage,
        "byte_fallback": args.byte_fallback,
    }
    given = {name: value for name, value in of_sentencepiece.items() if value is not None}
    if args.kind != "sentencepiece" and given:
        raise ConfigError(
            [
                Problem(f"--{name.replace('_', '-')}", "is of --kind sentencepiece", "leave it out")
                for name in given
            ]
        )
    recipe = Recipe(
        kind=args.kind,
        vocab_size=args.vocab_size,
        out=args.out.expanduser(),
        control=tuple(name for name in args.control.split(",") if name),
        overwrite=args.overwrite,
        **given,
    )
    return tokenizer_commands.train(
        args.inputs, args.json_key, recipe, args.sample_characters, skip_flawed=args.on_error == "skip"
    )


def _characters(text: str) -> int:
    number = int(text.replace(",", "").replace("_", ""))
    if number < LEAST_SAMPLE:
        raise argparse.ArgumentTypeError(f"{number} is less than {LEAST_SAMPLE:,}")
    return number

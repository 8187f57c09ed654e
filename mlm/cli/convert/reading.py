"""Options of the subcommands that read foreign weights."""

from __future__ import annotations

import argparse

from mlm.convert.formats import FORMATS
from mlm.convert.source import Reading


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="format", choices=tuple(FORMATS), help="format; found by looking")
    parser.add_argument(
        "--allow-pickle",
        action="store_true",
        help="read .bin and .pt files that could run code; only for files that you trust",
    )
    parser.add_argument(
        "--heads", metavar="N", type=int, help="attention heads, where the files do not say (Megatron-LM)"
    )
    parser.add_argument(
        "--vocab-size",
        metavar="N",
        type=int,
        help="rows of real tokens, where the files do not say (Megatron-LM)",
    )


def reading_of(args: argparse.Namespace) -> Reading:
    return Reading(allow_pickle=args.allow_pickle, num_heads=args.heads, vocab_size=args.vocab_size)

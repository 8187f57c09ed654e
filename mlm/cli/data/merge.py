"""mlm-data merge."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Several token datasets to one, in the order given. Documents stay documents; ids take a wider type where one
of the inputs has it; datasets of different tokenizers are refused. OUT is whole or absent at any moment."""
EXAMPLES = """\
  mlm-data merge data/all data/part1_text_document data/part2_text_document"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", type=Path, help="PREFIX of the dataset to write")
    parser.add_argument("inputs", metavar="IN", type=Path, nargs="+", help="PREFIX of a .bin/.idx pair")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")


def run(args: argparse.Namespace) -> int:
    from mlm.corpus.datasets.merge import merge

    for line in merge(args.out, args.inputs, overwrite=args.overwrite):
        print(line)
    return 0

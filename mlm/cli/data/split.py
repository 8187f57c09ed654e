"""mlm-data split."""

from __future__ import annotations

import argparse
import math
from fractions import Fraction
from pathlib import Path

from mlm.errors import ConfigError, Problem

DESCRIPTION = """\
One token dataset to several, by documents and in the file's order: the first part takes its share from the
beginning. Training splits by itself (data.split); this is for parts that have to be files of their own."""
EXAMPLES = """\
  mlm-data split data/all --parts 0.9,0.1 --out data/train data/heldout"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PREFIX", type=Path, help="PREFIX of a .bin/.idx pair")
    parser.add_argument("--parts", required=True, metavar="SHARE,SHARE,...", help="shares, as 0.9,0.1 or 9,1")
    parser.add_argument("--out", required=True, metavar="OUT", type=Path, nargs="+", help="a PREFIX for each")
    parser.add_argument("--overwrite", action="store_true", help="replace what exists")


def run(args: argparse.Namespace) -> int:
    shares = _shares(args.parts)
    problems = []
    if len(shares) != len(args.out):
        wrong = f"gives {len(shares)} shares for {len(args.out)} names in --out"
        problems.append(Problem(f"--parts {args.parts}", wrong, "give one name for each share"))
    if len({out.absolute() for out in args.out}) < len(args.out):
        problems.append(Problem("--out", "gives one name twice", "give each part a name of its own"))
    if problems:
        raise ConfigError(problems)
    from mlm.corpus.datasets.merge import split

    for line in split(args.path, shares, args.out, overwrite=args.overwrite):
        print(line)
    return 0


def _shares(typed: str) -> list[Fraction]:
    """The shares as exact fractions of the decimals that were typed. Raises ConfigError."""
    shares = []
    for word in typed.split(","):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            wrong = f"contains {word.strip() or 'nothing'!r}, which is no number above 0"
            raise ConfigError(Problem(f"--parts {typed}", wrong, "write shares as 0.9,0.1"))
        shares.append(Fraction(repr(value)))
    return shares

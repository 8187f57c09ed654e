"""mlm-convert verify."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Read whole checkpoints: every file is there, has its size and its checksum, and the index has a place for
every element of every tensor. A run stands for all of its checkpoints. Checksums find damage, not malice.
Exit code 0: all are whole. 1: something is wrong; it is said what, by file."""
EXAMPLES = """\
  mlm-convert verify runs/first
  mlm-convert verify runs/first/checkpoints/step_1000 runs/second"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoints", metavar="CHECKPOINT", type=Path, nargs="+", help="a run or a checkpoints/step_N"
    )


def run(args: argparse.Namespace) -> int:
    from mlm.convert.verify import checkpoints_of, leftovers, verify

    directories = [(path, directory) for path in args.checkpoints for directory in checkpoints_of(path)]
    whole = True
    for _, directory in directories:
        verdict = verify(directory)
        if verdict.wrong:
            whole = False
            print(f"{directory}: NOT whole", *(f"  {sentence}" for sentence in verdict.wrong), sep="\n")
        else:
            print(f"{directory}: whole: {'; '.join(verdict.facts)}")
    for path in args.checkpoints:
        for left in leftovers(path):
            print(f"{left}: never completed, it counts as nothing")
    return 0 if whole else 1

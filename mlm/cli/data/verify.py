"""mlm-data verify."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Read whole token datasets and check all that can be checked: sizes, offsets, order of the index, truncation,
the range of the ids and, where PREFIX.json records them, counts, checksums and the end of every document.
Exit code 0: all are sound. 1: something is wrong; it is said what."""
EXAMPLES = """\
  mlm-data verify data/wiki_text_document
  mlm-data verify data/a data/b --vocab-size 50257"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefixes", metavar="PREFIX", type=Path, nargs="+", help="PREFIX of a .bin/.idx pair")
    parser.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="ids have to be below N (otherwise in the recorded vocabulary)",
    )


def run(args: argparse.Namespace) -> int:
    from mlm.corpus.datasets.verify import verify

    sound = True
    for prefix in args.prefixes:
        verdict = verify(prefix, args.vocab_size)
        if verdict.wrong:
            sound = False
            count = f"{len(verdict.wrong)} problem{'s' if len(verdict.wrong) != 1 else ''}"
            print(f"{prefix}: NOT sound, {count}", *(f"  {line}" for line in verdict.wrong), sep="\n")
        else:
            print(f"{prefix}: sound: {'; '.join(verdict.facts)}")
    return 0 if sound else 1

"""mlm-convert inspect."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from mlm.cli.convert.reading import add_reading_arguments, reading_of
from mlm.convert.source import Source

DESCRIPTION = """\
Show what foreign weights are: format, model, tokenizer, and each tensor with its shape and the name of the
parameter that it becomes. Only headers are read."""
EXAMPLES = """\
  mlm-convert inspect gpt2/"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", type=Path, help="the folder of the weights")
    add_reading_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from mlm.config.fields import plain
    from mlm.convert.formats import open_source

    source = open_source(args.source.expanduser(), reading_of(args), kind=args.format)
    ours = {
        name: e.ours for e in source.table.of_layers(source.model.num_layers).values() for name in e.theirs
    }
    print(f"{args.source}: {source.format}")
    for key, value in asdict(source.model).items():
        shown = "null" if value is None else plain(value)
        print(f"  model.{key}={shown.lower() if isinstance(value, bool) else shown}")
    found = source.tokenizer
    words = "none" if found is None else f"{found.kind} {found.path or 'as shipped with mlm'}"
    print(f"  tokenizer: {words}")
    rows = [(name, str(list(shape)), _becomes(name, source, ours)) for name, shape in source.shapes.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, size, becomes in rows:
        print(f"  {name:{widths[0]}}  {size:{widths[1]}}  {becomes}")
    return 0


def _becomes(name: str, source: Source, ours: Mapping[str, str]) -> str:
    canonical = source.table.canonical(name)
    if canonical is None:
        return "ignored"
    if canonical in source.table.copies and not (canonical in ours and not source.model.tie_embeddings):
        return f"a copy of {source.table.copies[canonical]}"
    return ours.get(canonical, "no name that is known")

"""mlm-data: text to token datasets and back, one subcommand each."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mlm.cli.subcommands import Family

DATA = Family(
    "mlm-data",
    "Token datasets from text, and a look at them.",
    "mlm.cli.data",
    {
        "prepare": "text, JSONL or Parquet to PREFIX_text_document.bin and .idx",
        "filter": "drop short, duplicate and contaminated documents",
        "tokenizer": "train a tokenizer, or show what one makes of a text",
        "inspect": "text and lengths of a token dataset",
        "verify": "check a token dataset's sizes, offsets, ids and checksums",
        "merge": "several token datasets to one",
        "split": "one token dataset to several, by documents",
        "fetch": "download a public dataset, with checksums",
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 (failed on the way), 2 (refused), 130."""
    return DATA.run(argv)


if __name__ == "__main__":
    sys.exit(main())

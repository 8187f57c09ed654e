"""mlm-convert: weights from and to other programs, one subcommand each."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mlm.cli.errors import EXIT_FAILED
from mlm.cli.subcommands import Family

CONVERT = Family(
    "mlm-convert",
    "Weights from and to other programs; checkpoints as one file, and whether they are whole.",
    "mlm.cli.convert",
    {
        "import": "weights of Hugging Face or Megatron-LM as a run of mlm",
        "export": "a checkpoint as Hugging Face or Megatron-LM has it",
        "inspect": "what foreign weights are, and what their tensors are called here",
        "consolidate": "the full tensors of a checkpoint in one safetensors file",
        "verify": "read checkpoints and compare every byte with its checksum",
    },
    outcome="nothing was written",
    failed=EXIT_FAILED,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 (failed on the way), 2 (refused), 130."""
    return CONVERT.run(argv)


if __name__ == "__main__":
    sys.exit(main())

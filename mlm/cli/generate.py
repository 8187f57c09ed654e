"""mlm-generate: compose, check, then start or join the workers. Imports no torch until they are started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlm.cli.run import run
from mlm.launch.command import Command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 (a worker failed), 2 (refused), 130, 143."""
    return run("mlm-generate", argv, _help, _command)


def _help(config_dirs: Sequence[Path]) -> str:
    from mlm.cli import help as help_text

    return help_text.generate(config_dirs)


def _command() -> Command[Any]:
    from mlm.launch.generation import GENERATE

    return GENERATE


if __name__ == "__main__":
    sys.exit(main())

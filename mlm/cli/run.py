"""What every command that starts workers does with its arguments and its errors. Imports no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlm
from mlm.cli import arguments as command_line
from mlm.cli.errors import exit_code_of
from mlm.launch.command import Command


def run(
    name: str,
    argv: Sequence[str] | None,
    help_text: Callable[[Sequence[Path]], str],
    command: Callable[[], Command[Any]],
    *,
    can_sweep: bool = False,
) -> int:
    """Run the command and return its exit code: 0, 1 (a worker failed), 2 (refused), 130, 143.

    command is asked for only when something is to be started, so that --help answers at once. can_sweep:
    whether -m makes several runs of it.
    """
    typed = list(sys.argv[1:] if argv is None else argv)

    def answer() -> int:
        given = command_line.parse(typed)
        if given.help:
            print(help_text(given.config_dirs), end="", flush=True)
            return 0
        if given.version:
            print(f"{name} {mlm.__version__}")
            return 0
        if given.multirun and can_sweep:
            from mlm.launch.sweep.start import start_sweep as start
        else:
            from mlm.launch.start import start

            given.refuse_sweeps(can_sweep)
        return start(
            command(),
            given.overrides,
            given.config_dirs,
            typed=[name, *typed],
            environment=os.environ,
            flaws=given.problems,
        )

    return exit_code_of(answer, lambda: name)

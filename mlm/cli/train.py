"""mlm-train: compose, check, then start or join the workers. Imports no torch until they are started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import mlm
from mlm.cli import arguments as command_line
from mlm.errors import ConfigError, MlmError
from mlm.launch import refusal

COMMAND = "mlm-train"
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 (a worker failed), 2 (refused), 130, 143."""
    typed = list(sys.argv[1:] if argv is None else argv)
    try:
        given = command_line.parse(typed)
        if given.help:
            from mlm.cli import help as help_text

            print(help_text.text(given.config_dirs), end="", flush=True)
            return 0
        if given.version:
            print(f"{COMMAND} {mlm.__version__}")
            return 0
        from mlm.launch.start import start

        command = [COMMAND, *typed]
        return start(
            given.overrides, given.config_dirs, command=command, environment=os.environ, flaws=given.problems
        )
    except ConfigError as error:
        return refusal.refuse(COMMAND, error.problems)
    except MlmError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return refusal.EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # `mlm-train --help | head` closes our output; that is no failure worth a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())

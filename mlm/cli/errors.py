"""What every command does with an error that reaches its top: one sentence or table, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from mlm.errors import ConfigError, MlmError
from mlm.launch import refusal

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def exit_code_of(
    do: Callable[[], int],
    name: Callable[[], str],
    *,
    outcome: str = refusal.NOTHING_STARTED,
    failed: int = refusal.EXIT_REFUSED,
) -> int:
    """The code that do() returns, or that of the error it raises, which is told on standard error.

    name: of the command, when there is something to tell. outcome: what a refusal says has not been done.
    failed: code of an error that comes after the checks.
    """
    try:
        return do()
    except ConfigError as error:
        return refusal.refuse(name(), error.problems, outcome=outcome)
    except MlmError as error:
        print(f"{name()}: {error}", file=sys.stderr)
        return failed
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # `mlm-train --help | head` closes our output; that is no failure worth a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

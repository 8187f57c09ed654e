"""What every worker process does around its work: it hears signals, records its failure, leaves cleanly."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from mlm.failures import record_failure
from mlm.launch.orphans import watch_parent


def listen() -> None:
    """Leave Ctrl-C to the system and end with the launcher; call it before anything slow."""
    # A terminal sends Ctrl-C to every process; the launcher answers for all of them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    watch_parent()


def work(task: Callable[[], None], folder: Path, command: str) -> int:
    """Do the task as rank RANK and return the process's exit code, 0 or 1.

    task keeps nothing alive when it returns: model, mesh and groups are its own locals. A failure is recorded
    in folder/errors with its rank and traceback, for the launcher to show, and not printed here: by the time
    its peers have failed too, the cause would be buried.
    """
    try:
        task()
    except BaseException as error:
        record_failure(folder, int(os.environ.get("RANK", 0)), error, command)
        return 1
    # gloo's threads must find nothing of ours when the interpreter ends: drop all references, then the
    # groups.
    gc.collect()
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


def leave(code: int) -> None:
    """End the process without the interpreter's own end, in which gloo's threads can abort it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

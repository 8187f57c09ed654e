"""Which rank failed first and how to tell the user: the cause with its traceback, the rest in a line each."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path

from mlm.failures import Failure

# What gloo, NCCL and the store say on ranks whose peer has gone. Such a rank fails later than the cause,
# but a cause that leaves no record (SIGKILL) has no earlier time to be found by.
_LOST_PEER = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "connectfullmesh",
    "failed to recv",
    "remote process exited",
    "ncclremoteerror",
    "socket timeout",
    "timed out waiting",
)
_INTERRUPTS = ("KeyboardInterrupt", "SystemExit")


def is_consequence(failure: Failure) -> bool:
    """True for a failure that another rank's end explains: a lost connection, or our own signal."""
    text = failure.message.lower()
    return failure.type in _INTERRUPTS or any(words in text for words in _LOST_PEER)


MEMORY_HINT = "try a smaller train.micro_batch_size; launch=dry_run shows what weights and optimizer need"


def explain(
    failures: list[Failure],
    first_exits: Mapping[int, int],
    world_size: int,
    run_dir: Path,
    *,
    command: str = "mlm-train",
    memory_hint: str = MEMORY_HINT,
) -> str:
    """The report on a failed job, ending in a newline.

    failures: what ranks recorded, earliest first. first_exits: rank -> exit status (negative: signal)
    of the ranks that had ended by themselves when the launcher noticed; later ends are its own doing.
    memory_hint: what to try when a worker was killed, most often for want of memory.
    """
    recorded = {failure.rank for failure in failures}
    causes = [failure for failure in failures if not is_consequence(failure)]
    # A rank that died without a word is the cause only if it was not the launcher that ended it.
    silent = {rank: status for rank, status in sorted(first_exits.items()) if rank not in recorded and status}
    lines: list[str] = []
    others: list[str] = []
    if causes:
        shown, rest = causes[0], [f for f in failures if f is not causes[0]]
        lines += _shown(shown, command)
        others += [f"rank {rank} {_status(status)}" for rank, status in silent.items()]
    elif silent:
        (rank, status), *more = silent.items()
        hint = _hint(status, memory_hint)
        lines += [f"{command}: rank {rank} {_status(status)} and left no traceback{hint}"]
        rest = failures
        others += [f"rank {other} {_status(code)}" for other, code in more]
    elif failures:
        lines += _shown(failures[0], command)
        rest = failures[1:]
    else:
        return f"{command}: the {world_size} workers ended without a result and left no error files\n"
    others += [f"rank {f.rank} then failed with {f.type}: {_first_line(f.message)}" for f in rest]
    lines += [f"  {line}" for line in others]
    if failures:
        lines.append(f"  tracebacks of all ranks that left one: {run_dir / 'errors'}")
    return "\n".join(lines) + "\n"


def _shown(failure: Failure, command: str) -> list[str]:
    if failure.user_error:
        return [f"{command}: rank {failure.rank} stopped the run: {failure.message}"]
    clock = time.strftime("%H:%M:%S", time.localtime(failure.time_s))
    where = f"{command}: rank {failure.rank} on {failure.host} failed at {clock} and ended the run"
    return [where, failure.traceback.rstrip()]


def _status(status: int) -> str:
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _hint(status: int, memory_hint: str) -> str:
    if status == -signal.SIGKILL:
        return f": most often the machine had no memory left ({memory_hint})"
    return ": what it printed before is above" if status > 0 else ""


def _first_line(message: str) -> str:
    line = message.strip().splitlines()[0] if message.strip() else ""
    return line if len(line) <= 160 else line[:157] + "..."

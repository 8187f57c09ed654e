"""How a failing rank says what happened: one JSON file each in run_dir/errors, read by the launcher."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from mlm.errors import MlmError
from mlm.files import write_whole

LAUNCHER_PID = "MLM_LAUNCHER_PID"
"""Set in workers that one of our commands started; absent where torchrun or srun did."""
STARTED = "MLM_STARTED"
"""time.time() of the command that a worker belongs to."""
FAILURES_ARE_READ = "MLM_FAILURES_ARE_READ"
"""Set where srun starts the workers and one of our commands, which started srun, reports their failures."""


@dataclass(frozen=True)
class Failure:
    """One rank's exception. `time_s` is seconds since the epoch on that rank's host."""

    rank: int
    host: str
    time_s: float
    type: str
    message: str
    traceback: str
    user_error: bool = False
    """The message says all: it is one of mlm.errors, so no traceback is shown."""


def record_failure(
    run_dir: Path | str, rank: int, exception: BaseException, command: str = "mlm-train"
) -> None:
    """Write run_dir/errors/rank_N.json whole or not at all; never raises.

    Where no launcher of ours will read it (torchrun, srun) or it cannot be written, the failure is
    also printed to stderr.
    """
    failure = Failure(
        rank=rank,
        host=socket.gethostname(),
        time_s=time.time(),
        type=type(exception).__name__,
        message=str(exception),
        traceback="".join(traceback.format_exception(exception)),
        user_error=isinstance(exception, MlmError),
    )
    written = _write(Path(run_dir) / "errors", failure)
    if not written or not {LAUNCHER_PID, FAILURES_ARE_READ} & os.environ.keys():
        text = f"{failure.type}: {failure.message}\n" if failure.user_error else failure.traceback
        print(f"{command}: rank {rank} on {failure.host} failed\n{text}", end="", file=sys.stderr, flush=True)


def _write(folder: Path, failure: Failure) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"rank_{failure.rank}.json", json.dumps(asdict(failure), indent=2))
    except OSError:
        return False
    return True


def read_failures(run_dir: Path | str) -> list[Failure]:
    """The failures recorded in a run directory, earliest first; files that are not ours are passed over."""
    failures = []
    for path in Path(run_dir).glob("errors/rank_*.json"):
        try:
            failures.append(Failure(**json.loads(path.read_text())))
        except (OSError, ValueError, TypeError):
            continue
    return sorted(failures, key=lambda failure: (failure.time_s, failure.rank))

"""What a run leaves that was stopped in order: RUN_DIR/stopped.json, the launcher's word from the workers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mlm.files import write_whole

EXIT_SAVED = 75
"""Exit code of a run that was stopped and can go on (EX_TEMPFAIL, which schedulers take for `try again`)."""

STOPPED = "stopped.json"


@dataclass(frozen=True)
class Stopped:
    """Why and where an attempt of a run ended before its last step.

    reason: SIGTERM, or train.max_hours=2. checkpoint: where it goes on; None before the first step's end.
    """

    attempt: int
    step: int
    reason: str
    checkpoint: str | None

    def write(self, run_dir: Path) -> None:
        """Whole or not at all."""
        write_whole(run_dir / STOPPED, json.dumps(asdict(self), indent=1) + "\n", durable=True)


def read_stopped(run_dir: Path, attempt: int) -> Stopped | None:
    """How this attempt was stopped; None when it was not."""
    try:
        content = json.loads((run_dir / STOPPED).read_text(encoding="utf-8"))
        stopped = Stopped(**{field.name: content[field.name] for field in fields(Stopped)})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return stopped if stopped.attempt == attempt else None

"""What an attempt of a run begins with: decided once by the launcher, read by every worker. No torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mlm.files import write_whole

ORIGIN = "resume.json"


@dataclass(frozen=True)
class Origin:
    """One attempt of a run, counted from 1.

    checkpoint: the directory step_N that training goes on from. weights: one whose weights it starts with at
    step 0. With neither, training starts at step 0 with random weights.
    """

    attempt: int = 1
    checkpoint: str | None = None
    weights: str | None = None

    @property
    def is_fresh(self) -> bool:
        return self.checkpoint is None and self.weights is None

    def write(self, run_dir: Path) -> None:
        """Write run_dir/resume.json, whole or not at all."""
        write_whole(run_dir / ORIGIN, json.dumps(asdict(self), indent=1) + "\n", durable=True)


def read_origin(run_dir: Path) -> Origin | None:
    """That of the run's latest attempt; None when nobody has written one that can be read."""
    try:
        content = json.loads((run_dir / ORIGIN).read_text(encoding="utf-8"))
        return Origin(**{field.name: content[field.name] for field in fields(Origin)})
    except (OSError, ValueError, KeyError, TypeError):
        return None

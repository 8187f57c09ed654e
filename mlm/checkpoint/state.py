"""What a checkpoint holds besides tensors: where training was. No torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mlm.errors import CheckpointError

STATE = "state.json"


@dataclass(frozen=True)
class TrainingState:
    """Position of a run after `step` optimizer steps.

    consumed_samples: taken from the data, whatever the batch sizes were: the next sample's number.
    updates: steps that changed the parameters, which is what Adam's bias correction counts; skipped_steps:
    the others. loss_scale: fp16's, of the next step, None in other precisions; good_steps: the updates in a
    row since it last changed or a step was skipped.
    """

    step: int = 0
    consumed_samples: int = 0
    consumed_tokens: int = 0
    updates: int = 0
    skipped_steps: int = 0
    loss_scale: float | None = None
    good_steps: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def read_state(directory: Path) -> TrainingState:
    """Raises CheckpointError when the file is not what it has to be."""
    path = directory / STATE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return TrainingState(**{field.name: content[field.name] for field in fields(TrainingState)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} does not say where training was ({type(error).__name__}: {error}): "
            "use another checkpoint"
        ) from error

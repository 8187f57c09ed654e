"""A rank's model and optimizer as a checkpoint has them, whatever layout it was written at."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from mlm.checkpoint.origin import Origin, read_origin
from mlm.checkpoint.state import TrainingState, read_state
from mlm.data.prepared import PreparedData
from mlm.optim.adamw import AdamW
from mlm.parallel.mesh import Mesh


def read_plan(run_dir: Path, mesh: Mesh) -> tuple[Origin, PreparedData]:
    """What this attempt begins with and which data it trains on, as rank 0 reads them; collective.

    Both files are rewritten when a run goes on, and a file system of several machines may for a moment show
    some of them the former ones.
    """
    plan = [(read_origin(run_dir) or Origin(), (run_dir / "data.json").read_text(encoding="utf-8"))]
    if mesh.world_size > 1:
        dist.broadcast_object_list(plan, src=0, device=torch.device("cpu"))
    origin, data = plan[0]
    return origin, PreparedData.from_json(data)


def begin(origin: Origin, model: nn.Module, optimizer: AdamW, mesh: Mesh) -> TrainingState:
    """Fill model and optimizer in place as origin says and return where training begins.

    Every rank reads for itself. Raises CheckpointError when the checkpoint is of another model.
    """
    if origin.is_fresh:
        return TrainingState()
    # Imported when it is needed: with torch's part of it, it costs a second at start-up.
    from mlm.checkpoint.load import load_training, load_weights

    if origin.checkpoint is None:
        assert origin.weights is not None, "an origin that is not fresh names a directory"
        load_weights(Path(origin.weights), model, mesh)
        return TrainingState()
    directory = Path(origin.checkpoint)
    load_training(directory, model, optimizer.named_moments(), mesh)
    state = read_state(directory)
    optimizer.set_updates(state.updates)
    return state

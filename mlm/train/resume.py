"""A rank's model and optimizer as a checkpoint has them, whatever layout it was written at."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from mlm.checkpoint.manifest import MANIFEST
from mlm.checkpoint.origin import Origin, read_origin
from mlm.checkpoint.state import TrainingState, read_state
from mlm.config.schema import TrainConfig
from mlm.convert.formats import open_source
from mlm.convert.heads import allowed_heads
from mlm.convert.source import Reading
from mlm.data.prepared import PreparedData
from mlm.optim.adamw import AdamW
from mlm.parallel.mesh import Mesh
from mlm.train.log import logger


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


def begin(
    origin: Origin, model: nn.Module, optimizer: AdamW, mesh: Mesh, config: TrainConfig
) -> TrainingState:
    """Fill model and optimizer in place as origin says and return where training begins.

    Every rank reads for itself. Raises CheckpointError or ConfigError when the weights are of another model.
    """
    if origin.is_fresh:
        return TrainingState()
    # Imported when it is needed: with torch's part of it, it costs a second at start-up.
    from mlm.checkpoint.load import load_training

    if origin.checkpoint is None:
        assert origin.weights is not None, "an origin that is not fresh names a directory"
        _fill(Path(origin.weights), model, mesh, config)
        return TrainingState()
    directory = Path(origin.checkpoint)
    load_training(directory, model, optimizer.named_moments(), mesh)
    state = read_state(directory)
    optimizer.set_updates(state.updates)
    return state


def draws(origin: Origin, config: TrainConfig) -> bool:
    """Whether any value that the model starts with is one of its own, so that they have to be drawn."""
    if origin.is_fresh:
        return True
    return origin.checkpoint is None and bool(allowed_heads(config.objective.name).fresh)


def _fill(place: Path, model: nn.Module, mesh: Mesh, config: TrainConfig) -> None:
    """The weights of a checkpoint of ours, or of another program's files; heads may keep their values."""
    heads, dropped = allowed_heads(config.objective.name), tuple[str, ...]()
    if (place / MANIFEST).is_file():
        from mlm.checkpoint.load import load_weights

        fresh = load_weights(place, model, mesh, fresh=heads.fresh, dropped=heads.dropped)
    else:
        from mlm.convert.filling import fill_from

        reading = Reading(config.allow_pickle, config.model.num_heads, config.model.vocab_size)
        source = open_source(place, reading, key="init_from")
        found = fill_from(source, config.model, model, mesh.tp, heads)
        fresh, dropped = found.fresh, found.dropped
    if mesh.rank == 0 and fresh:
        logger.info(f"drawn anew, as {place} has none: {', '.join(fresh)}")
    if mesh.rank == 0 and dropped:
        logger.info(f"left out, as this model has none: {', '.join(dropped)}")

"""Writing and reading weights and optimizer moments with torch.distributed.checkpoint."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from mlm.checkpoint.layout import as_global, model_tensors
from mlm.errors import CheckpointError
from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import named_declarations


def save_checkpoint(
    directory: Path, model: nn.Module, moments: Iterable[tuple[str, Tensor, Tensor]], mesh: Mesh
) -> Path:
    """Write weights and Adam's moments to `directory`; collective over all ranks. Returns the directory.

    Written aside and renamed when every rank has finished: a directory of that name is complete. Ranks of
    the first data-parallel replica write; the others hold the same values. Raises CheckpointError when the
    directory exists or cannot be written.
    """
    if directory.exists():
        raise CheckpointError(f"{directory} exists: a checkpoint is never overwritten; move it away")
    aside = directory.with_name(directory.name + ".tmp")
    if mesh.rank == 0:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    declarations = {name: declaration for name, _, declaration in named_declarations(model)}
    state: dict[str, Tensor] = {f"model.{n}": t for n, t in model_tensors(model, mesh).items()}
    for name, first, second in moments:
        state[f"optim.first_moment.{name}"] = as_global(first, declarations[name], mesh)
        state[f"optim.second_moment.{name}"] = as_global(second, declarations[name], mesh)
    _barrier(mesh)
    if mesh.dp.rank == 0:
        try:
            # Only one replica takes part: its tp ranks, a group of their own.
            with _one_process_is_meant():
                save(state, checkpoint_id=aside, process_group=mesh.tp.group, no_dist=mesh.tp.size == 1)
        except CheckpointException as error:  # derives from BaseException
            raise CheckpointError(f"{aside} could not be written: {error}") from error
    _barrier(mesh)
    if mesh.rank == 0:
        os.rename(aside, directory)
    _barrier(mesh)
    return directory


def load_weights(directory: Path, model: nn.Module, mesh: Mesh) -> None:
    """Fill the model in place from a checkpoint written at any layout; collective over all ranks.

    Raises CheckpointError when the directory is no checkpoint or lacks a parameter of the model.
    """
    if not (directory / ".metadata").is_file():
        raise CheckpointError(f"{directory} is no checkpoint (it has no .metadata): name a step_N directory")
    state = {f"model.{n}": t for n, t in model_tensors(model, mesh).items()}
    try:
        with _one_process_is_meant():
            load(state, checkpoint_id=directory, process_group=mesh.tp.group, no_dist=mesh.tp.size == 1)
    except CheckpointException as error:
        raise CheckpointError(f"{directory} does not fit this model: {error}") from error


@contextmanager
def _one_process_is_meant() -> Iterator[None]:
    """Keep torch from warning of what no_dist=True asks for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninit")
        yield


def _barrier(mesh: Mesh) -> None:
    if mesh.world_size > 1:
        dist.barrier()

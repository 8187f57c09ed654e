"""Reading a checkpoint into a model and an optimizer of any layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load

from mlm.checkpoint.layout import as_global, moments, weights
from mlm.checkpoint.manifest import read_manifest
from mlm.checkpoint.save import one_process_is_meant
from mlm.checkpoint.storage import ShardReader, read_index
from mlm.errors import CheckpointError
from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import Declaration


def load_weights(directory: Path, model: nn.Module, mesh: Mesh) -> None:
    """Fill the model in place from a checkpoint that was written at any layout; every rank for itself.

    Raises CheckpointError when the directory is no checkpoint or is of another model.
    """
    _load(directory, weights(model), "model.", mesh)


def load_training(
    directory: Path, model: nn.Module, named_moments: Iterable[tuple[str, Tensor, Tensor]], mesh: Mesh
) -> None:
    """Fill the model and Adam's moments in place, as load_weights does."""
    _load(directory, weights(model) | moments(model, named_moments), "", mesh)


def _load(directory: Path, wanted: Mapping[str, tuple[Tensor, Declaration]], prefix: str, mesh: Mesh) -> None:
    read_manifest(directory)
    _check(directory, wanted, prefix)
    try:
        # Every rank reads its own part; nothing has to be told to others.
        with one_process_is_meant():
            load(as_global(wanted, mesh.device_mesh), storage_reader=ShardReader(directory), no_dist=True)
    except CheckpointException as error:  # derives from BaseException
        raise CheckpointError(f"{directory} could not be read: {error}") from error


def _check(directory: Path, wanted: Mapping[str, tuple[Tensor, Declaration]], prefix: str) -> None:
    """Raises CheckpointError unless names and full shapes are the same on both sides."""
    there = {n: tuple(t["shape"]) for n, t in read_index(directory).items() if n.startswith(prefix)}
    needed = {name: tuple(torch.Size(declaration.shape)) for name, (_, declaration) in wanted.items()}
    missing, left_over = sorted(needed.keys() - there.keys()), sorted(there.keys() - needed.keys())
    other_shape = [name for name in sorted(needed.keys() & there.keys()) if needed[name] != there[name]]
    found = []
    if missing:
        found.append(f"lacks {_some(missing)}")
    if left_over:
        found.append(f"holds {_some(left_over)}, which this model does not have")
    if other_shape:
        name = other_shape[0]
        found.append(f"has {name} of shape {list(there[name])} where this model has {list(needed[name])}")
    if found:
        raise CheckpointError(f"{directory} is of another model: it {'; it '.join(found)}")


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

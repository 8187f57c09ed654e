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


def load_weights(
    directory: Path,
    model: nn.Module,
    mesh: Mesh,
    *,
    fresh: tuple[str, ...] = (),
    dropped: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Fill the model in place from a checkpoint that was written at any layout; every rank for itself.

    fresh: beginnings of names that keep their values where the checkpoint lacks them; dropped: of names that
    it may have and the model not. Returns the parameters that keep theirs. Raises CheckpointError when the
    directory is no checkpoint or is of another model.
    """
    read_manifest(directory)
    wanted = weights(model)
    there = read_index(directory).keys()
    kept = [name for name in wanted if name not in there and name.removeprefix("model.").startswith(fresh)]
    for name in kept:
        del wanted[name]
    _load(directory, wanted, "model.", mesh, dropped)
    return tuple(name.removeprefix("model.") for name in kept)


def load_training(
    directory: Path, model: nn.Module, named_moments: Iterable[tuple[str, Tensor, Tensor]], mesh: Mesh
) -> None:
    """Fill the model and Adam's moments in place, as load_weights does."""
    _load(directory, weights(model) | moments(model, named_moments), "", mesh)


def _load(
    directory: Path,
    wanted: Mapping[str, tuple[Tensor, Declaration]],
    prefix: str,
    mesh: Mesh,
    dropped: tuple[str, ...] = (),
) -> None:
    read_manifest(directory)
    _check(directory, wanted, prefix, dropped)
    try:
        # Every rank reads its own part; nothing has to be told to others.
        with one_process_is_meant():
            load(as_global(wanted, mesh.device_mesh), storage_reader=ShardReader(directory), no_dist=True)
    except CheckpointException as error:  # derives from BaseException
        raise CheckpointError(f"{directory} could not be read: {error}") from error


def _check(
    directory: Path, wanted: Mapping[str, tuple[Tensor, Declaration]], prefix: str, dropped: tuple[str, ...]
) -> None:
    """Raises CheckpointError unless names and full shapes are the same on both sides, but for the dropped."""
    there = {n: tuple(t["shape"]) for n, t in read_index(directory).items() if n.startswith(prefix)}
    needed = {name: tuple(torch.Size(declaration.shape)) for name, (_, declaration) in wanted.items()}
    missing = sorted(needed.keys() - there.keys())
    left_over = sorted(
        n for n in there.keys() - needed.keys() if not n.removeprefix(prefix).startswith(dropped)
    )
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

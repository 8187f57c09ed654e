"""One safetensors file out of a checkpoint's shards, a tensor at a time."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

import mlm
from mlm.checkpoint.layout import FIRST_MOMENT, SECOND_MOMENT
from mlm.checkpoint.locate import Checkpoint
from mlm.checkpoint.manifest import damage
from mlm.checkpoint.storage import DTYPES, Place, mapped, read_index, slice_of
from mlm.config.schema import TrainConfig
from mlm.config.store import load_config
from mlm.convert.dtypes import FORMATS
from mlm.convert.tensor_writer import Piece, header_of, write_tensors
from mlm.errors import CheckpointError, ConfigError, Problem
from mlm.files import whole_file

WEIGHT = "model."
"""What a weight's name begins with in a checkpoint; in the file it is left out."""


@dataclass(frozen=True)
class Written:
    """What a consolidated file holds."""

    path: Path
    tensors: int
    elements: int
    bytes: int


def consolidate(
    checkpoint: Checkpoint,
    out: Path,
    *,
    dtype: str | None = None,
    optimizer: bool = False,
    overwrite: bool = False,
) -> Written:
    """Write the full tensors of a checkpoint, whatever layout wrote it, to one file; whole or not at all.

    Names are the model's parameters'; with optimizer, Adam's moments follow as optim.first_moment.NAME and
    optim.second_moment.NAME, which keep their dtype. dtype: of the weights, fp32, bf16 or fp16; None: as they
    are. The metadata hold the model's configuration. At most one tensor is in memory at a time, besides pages
    of the shards. Raises ConfigError when the request cannot be met, CheckpointError when the checkpoint is
    damaged or its weights do not fit the dtype.
    """
    out = out.expanduser()
    _check(out, overwrite)
    flaws = damage(checkpoint.directory)
    if flaws:
        raise CheckpointError(f"{checkpoint.directory.name} is damaged: {'; '.join(flaws)}")
    stored = read_index(checkpoint.directory)
    kinds = (WEIGHT, FIRST_MOMENT, SECOND_MOMENT) if optimizer else (WEIGHT,)
    chosen = {name: tensor for name, tensor in stored.items() if name.startswith(kinds)}
    wanted = FORMATS.get(dtype or "")
    pieces = [
        Piece(
            name.removeprefix(WEIGHT),
            wanted if wanted is not None and name.startswith(WEIGHT) else DTYPES[tensor["dtype"]],
            tuple(tensor["shape"]),
        )
        for name, tensor in chosen.items()
    ]
    # Wide elements first, so that every tensor is aligned to its element without a gap.
    ordered = sorted(zip(pieces, chosen, strict=True), key=lambda pair: -pair[0].dtype.itemsize)
    pieces, order = [piece for piece, _ in ordered], [name for _, name in ordered]
    metadata = _metadata(checkpoint)
    size = len(header_of(pieces, metadata)[0]) + sum(piece.bytes for piece in pieces)
    check_room(out, size)
    full = (full_tensor(checkpoint.directory, name, chosen[name]) for name in order)
    with _whole_or_not_at_all(out) as file:
        write_tensors(file, pieces, full, metadata)
    elements = sum(math.prod(chosen[name]["shape"]) for name in order)
    return Written(out, len(order), elements, size)


def _check(out: Path, overwrite: bool) -> None:
    if out.is_dir():
        raise ConfigError(
            Problem(str(out), "is a directory", f"name a file in it, {out / 'model.safetensors'}")
        )
    if not out.parent.is_dir():
        raise ConfigError(Problem(str(out), f"lies in no directory: {out.parent} is none", "make it first"))
    if out.exists() and not overwrite:
        raise ConfigError(Problem(str(out), "exists", "name another file, or add --overwrite"))


def check_room(out: Path, size: int) -> None:
    """Raises ConfigError when the disk that out is to lie on has no room for so many bytes."""
    free = shutil.disk_usage(out.parent).free
    if free < size:
        wrong = f"needs {size / 2**20:,.1f} MiB and the disk has {free / 2**20:,.1f} MiB free"
        raise ConfigError(Problem(str(out), wrong, "make room, or name another place"))


def _metadata(checkpoint: Checkpoint) -> dict[str, str]:
    model = asdict(load_config(checkpoint.config_path, TrainConfig).model)
    return {
        "format": "pt",
        "mlm_version": mlm.__version__,
        "step": str(checkpoint.step),
        "model": json.dumps(model, default=lambda value: value.name),
    }


def full_tensor(directory: Path, name: str, stored: Mapping[str, Any]) -> Tensor:
    """The full tensor of an entry of read_index: the mapped file itself when one shard holds all of it."""
    dtype, shape = DTYPES[stored["dtype"]], tuple(stored["shape"])
    parts = [
        (chunk["offsets"], slice_of(mapped(directory / chunk["file"]), _place(chunk), dtype))
        for chunk in stored["chunks"]
    ]
    if sum(part.numel() for _, part in parts) != math.prod(shape):
        raise CheckpointError(f"{directory} does not hold all of {name}: use another checkpoint")
    if len(parts) == 1:
        return parts[0][1]
    full = torch.empty(shape, dtype=dtype)
    for offsets, part in parts:
        full[tuple(slice(o, o + n) for o, n in zip(offsets, part.shape, strict=True))] = part
    return full


def _place(chunk: Mapping[str, Any]) -> Place:
    return Place(chunk["file"], chunk["start"], tuple(chunk["shape"]))


@contextmanager
def _whole_or_not_at_all(out: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when all of it is on the disk."""
    try:
        with whole_file(out) as file:
            yield file
    except OSError as error:
        raise CheckpointError(f"{out} could not be written: {error.strerror or error}") from error

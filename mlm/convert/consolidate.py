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
from mlm.checkpoint.storage import DTYPES, NAMES, Place, mapped, read_index, slice_of
from mlm.config.schema import TrainConfig
from mlm.config.store import load_config
from mlm.errors import CheckpointError, ConfigError, Problem
from mlm.files import whole_file

WEIGHT = "model."
"""What a weight's name begins with in a checkpoint; in the file it is left out."""

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


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
    dtypes = {
        name: wanted if wanted is not None and name.startswith(WEIGHT) else DTYPES[tensor["dtype"]]
        for name, tensor in chosen.items()
    }
    # Wide elements first, so that every tensor is aligned to its element without a gap.
    order = sorted(chosen, key=lambda name: -dtypes[name].itemsize)
    header = _header(order, chosen, dtypes, _metadata(checkpoint))
    size = len(header) + sum(math.prod(chosen[n]["shape"]) * dtypes[n].itemsize for n in order)
    _check_room(out, size)
    with _whole_or_not_at_all(out) as file:
        file.write(header)
        for name in order:
            file.write(_bytes(_full(checkpoint.directory, name, chosen[name]), dtypes[name], name))
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


def _check_room(out: Path, size: int) -> None:
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


def _header(
    order: list[str], stored: Mapping[str, Any], dtypes: Mapping[str, torch.dtype], metadata: dict[str, str]
) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata}
    position = 0
    for name in order:
        shape = list(stored[name]["shape"])
        end = position + math.prod(shape) * dtypes[name].itemsize
        entry = {"dtype": NAMES[dtypes[name]], "shape": shape, "data_offsets": [position, end]}
        entries[name.removeprefix(WEIGHT)] = entry
        position = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _full(directory: Path, name: str, stored: Mapping[str, Any]) -> Tensor:
    """The full tensor: the mapped file itself when one shard holds all of it."""
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


def _bytes(tensor: Tensor, dtype: torch.dtype, name: str) -> memoryview:
    narrowed = tensor.to(dtype).contiguous()
    if narrowed.dtype != tensor.dtype and not narrowed.isfinite().all() and tensor.isfinite().all():
        largest = tensor.abs().max().item()
        raise CheckpointError(
            f"{name.removeprefix(WEIGHT)} holds {largest:g}, beyond what fp16 can: use --dtype bf16 or fp32"
        )
    return narrowed.view(-1).view(torch.uint8).numpy().data


@contextmanager
def _whole_or_not_at_all(out: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when all of it is on the disk."""
    try:
        with whole_file(out) as file:
            yield file
    except OSError as error:
        raise CheckpointError(f"{out} could not be written: {error.strerror or error}") from error

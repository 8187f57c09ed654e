"""How torch.distributed.checkpoint's plans meet the disk: one safetensors file a rank, one JSON index.

torch's own file format pickles its index and every tensor. Here nothing is pickled, so nothing is executed
when a checkpoint is read, any safetensors reader opens the files, and tensors are copied straight from the
page cache.
"""

from __future__ import annotations

import concurrent.futures
import io
import json
import math
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from mlm.checkpoint.manifest import FileRecord, write_through
from mlm.errors import CheckpointError

INDEX = "index.json"
_BLOCK_BYTES = 1 << 20
_FLUSH_BYTES = 32 << 20
# macOS has none.
_fdatasync = getattr(os, "fdatasync", os.fsync)

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
}
"""Number formats by their names in safetensors files."""

NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Place:
    """Where the bytes of one chunk are: file, offset in it; the chunk's shape, and the file's record."""

    file: str
    offset: int
    shape: tuple[int, ...]
    record: FileRecord | None = None


class ShardWriter(StorageWriter):
    """Writes this rank's part of the plan to rank_R.safetensors, and on the coordinator index.json.

    After the save, `records` of the coordinator holds size and checksum of every file of tensors.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.records: dict[str, FileRecord] = {}
        self._rank = 0

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._rank = kwargs.get("rank") or 0

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        done: Future[list[WriteResult]] = Future()
        done.set_result(self._write(plan.items, planner) if plan.items else [])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        places = {result.index: result.storage_data for rank in results for result in rank}
        tensors = {
            name: _described(name, stored, places)
            for name, stored in metadata.state_dict_metadata.items()
            if isinstance(stored, TensorStorageMetadata)
        }
        self.records = {place.file: place.record for place in places.values() if place.record is not None}
        self.records[INDEX] = write_through(self.folder / INDEX, json.dumps({"tensors": tensors}) + "\n")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True

    def _write(self, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        # Wide elements first, so that every tensor is aligned to its element without a gap.
        resolved = [(item, _tensor(planner.resolve_data(item))) for item in items]
        resolved.sort(key=lambda pair: -pair[1].element_size())
        header, offsets = _header(resolved)
        name = f"rank_{self._rank}.safetensors"
        with (self.folder / name).open("wb", buffering=0) as file, ThreadPoolExecutor(1) as flushing:
            summed = _SummedFile(file.fileno(), flushing)
            summed.write(header)
            for _, tensor in resolved:
                summed.write(_bytes_of(tensor))
            record = summed.finish()
        return [
            WriteResult(item.index, tensor.nbytes, Place(name, offset, tuple(tensor.shape), record))
            for (item, tensor), offset in zip(resolved, offsets, strict=True)
        ]


class ShardReader(StorageReader):
    """Reads what ShardWriter wrote, at any layout; tensors come from the page cache by memory map."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._places: dict[MetadataIndex, Place] = {}
        self._dtypes: dict[str, torch.dtype] = {}

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        tensors = read_index(self.folder)
        self._places = {
            MetadataIndex(name, chunk["offsets"]): Place(chunk["file"], chunk["start"], tuple(chunk["shape"]))
            for name, tensor in tensors.items()
            for chunk in tensor["chunks"]
        }
        self._dtypes = {name: DTYPES[tensor["dtype"]] for name, tensor in tensors.items()}
        return Metadata({n: _as_metadata(t) for n, t in tensors.items()}, storage_data=self._places)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        assert self._places or not metadata.state_dict_metadata, "every rank has read the index"

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        files: dict[str, Tensor] = {}
        for item in plan.items:
            place, dtype = self._places[item.storage_index], self._dtypes[item.storage_index.fqn]
            if place.file not in files:
                files[place.file] = mapped(self.folder / place.file)
            stored = slice_of(files[place.file], place, dtype)
            for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                stored = stored.narrow(dim, offset, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(stored)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def read_index(folder: Path) -> dict[str, Any]:
    """Tensor name -> its dtype, full shape and chunks, as index.json has them.

    A chunk has offsets and shape in the full tensor, and file and start (a byte) on disk. Raises
    CheckpointError when the index cannot be read.
    """
    path = folder / INDEX
    try:
        tensors: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["tensors"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): use another checkpoint") from error
    return tensors


def mapped(path: Path) -> Tensor:
    """The bytes of a file as a tensor over a private memory map."""
    return torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)


def slice_of(file: Tensor, place: Place, dtype: torch.dtype) -> Tensor:
    """The chunk at that place of a mapped file, without a copy."""
    length = math.prod(place.shape) * dtype.itemsize
    return file[place.offset : place.offset + length].view(dtype).view(place.shape)


def _described(
    name: str, stored: TensorStorageMetadata, places: dict[MetadataIndex, Place]
) -> dict[str, Any]:
    chunks = []
    for chunk in stored.chunks:
        place = places[MetadataIndex(name, chunk.offsets)]
        offsets, shape = list(chunk.offsets), list(chunk.sizes)
        chunks.append({"offsets": offsets, "shape": shape, "file": place.file, "start": place.offset})
    return {"dtype": NAMES[stored.properties.dtype], "shape": list(stored.size), "chunks": chunks}


def _as_metadata(tensor: dict[str, Any]) -> TensorStorageMetadata:
    chunks = [
        ChunkStorageMetadata(torch.Size(c["offsets"]), torch.Size(c["shape"])) for c in tensor["chunks"]
    ]
    properties = TensorProperties(dtype=DTYPES[tensor["dtype"]])
    return TensorStorageMetadata(properties, torch.Size(tensor["shape"]), chunks)


def _header(resolved: list[tuple[WriteItem, Tensor]]) -> tuple[bytes, list[int]]:
    """The beginning of a safetensors file, and where in the file each tensor will start."""
    entries, starts, position = {}, [], 0
    for item, tensor in resolved:
        offsets = ",".join(map(str, item.index.offset or ()))
        starts.append(position)
        entries[f"{item.index.fqn}[{offsets}]"] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.nbytes],
        }
        position += tensor.nbytes
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    begin = 8 + len(text)
    return len(text).to_bytes(8, "little") + text, [begin + start for start in starts]


def _tensor(data: Tensor | io.BytesIO) -> Tensor:
    assert isinstance(data, Tensor), "a checkpoint's state is tensors; the rest is in files of its own"
    return data


def _bytes_of(tensor: Tensor) -> memoryview:
    """The tensor's memory, in row-major order; copied to the CPU when it is elsewhere."""
    flat = tensor.detach().to("cpu").contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data


class _SummedFile:
    """A file that is summed up while it is written, and that the disk begins with before it is all there."""

    def __init__(self, handle: int, flushing: ThreadPoolExecutor):
        self._handle, self._flushing = handle, flushing
        self._crc = self._bytes = self._flushed = 0
        self._flush: concurrent.futures.Future[None] | None = None

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view:
            # Summed and written while it is in the processor's cache. A thread of its own for the sums would
            # take longer as soon as the cores are busy, which they are when training goes on.
            block = view[:_BLOCK_BYTES]
            self._crc = zlib.crc32(block, self._crc)
            self._bytes += len(block)
            while block:
                # Less than all of it is written on a full disk, before the next call fails.
                block = block[os.write(self._handle, block) :]
            view = view[_BLOCK_BYTES:]
            self._keep_the_disk_at_work()

    def finish(self) -> FileRecord:
        """Size and checksum, when all is on the disk."""
        self._wait_for_flush()
        os.fsync(self._handle)
        return FileRecord(self._bytes, self._crc)

    def _keep_the_disk_at_work(self) -> None:
        busy = self._flush is not None and not self._flush.done()
        if busy or self._bytes - self._flushed < _FLUSH_BYTES:
            return
        self._wait_for_flush()
        self._flushed = self._bytes
        self._flush = self._flushing.submit(_fdatasync, self._handle)

    def _wait_for_flush(self) -> None:
        # The system reports a failed write to one caller only, so that none may be passed over.
        if self._flush is not None:
            self._flush.result()
            self._flush = None

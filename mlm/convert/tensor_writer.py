"""A safetensors file written a tensor at a time, without ever holding two."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import torch
from torch import Tensor

from mlm.checkpoint.manifest import FileRecord
from mlm.convert.dtypes import NAMES, narrowed

_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Piece:
    """What is known of a tensor before it is there."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class TensorsWritten:
    """The file's size and checksum, and where in it the bytes of each tensor begin."""

    record: FileRecord
    starts: dict[str, int]


def write_tensors(
    file: BinaryIO, pieces: Sequence[Piece], tensors: Iterable[Tensor], metadata: Mapping[str, str]
) -> TensorsWritten:
    """Write the tensors of the pieces, in their order, each converted to its piece's dtype.

    Raises CheckpointError when a tensor has values that its dtype cannot hold. Offsets are aligned to each
    element where wide dtypes come first.
    """
    header, starts = header_of(pieces, metadata)
    crc, size = zlib.crc32(header), len(header)
    file.write(header)
    source = iter(tensors)
    for piece in pieces:  # zip would keep each tensor until it has the next
        tensor = next(source)
        assert tuple(tensor.shape) == piece.shape, f"{piece.name} is {list(tensor.shape)}"
        data = _bytes(tensor, piece)
        for start in range(0, len(data), _BLOCK_BYTES):
            block = data[start : start + _BLOCK_BYTES]
            crc, size = zlib.crc32(block, crc), size + len(block)
            file.write(block)
        del data, tensor  # before the next one is made
    return TensorsWritten(FileRecord(size, crc), starts)


def header_of(pieces: Sequence[Piece], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The beginning of the file, and where in the file each tensor will start."""
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    position, starts = 0, {}
    for piece in pieces:
        entries[piece.name] = {
            "dtype": NAMES[piece.dtype],
            "shape": list(piece.shape),
            "data_offsets": [position, position + piece.bytes],
        }
        starts[piece.name] = position
        position += piece.bytes
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    begin = 8 + len(text)
    return len(text).to_bytes(8, "little") + text, {name: begin + start for name, start in starts.items()}


def _bytes(tensor: Tensor, piece: Piece) -> memoryview:
    found = narrowed(tensor.detach(), piece.dtype, piece.name).contiguous()
    return found.view(-1).view(torch.uint8).numpy().data

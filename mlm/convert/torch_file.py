"""A file of torch.save written a tensor at a time: torch's own needs all of them in memory at once."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO

import torch
from torch import Tensor

_STORAGES = {
    torch.float64: torch.DoubleStorage,
    torch.float32: torch.FloatStorage,
    torch.float16: torch.HalfStorage,
    torch.bfloat16: torch.BFloat16Storage,
}
_ROOT = "archive"
_ALIGNMENT = 64
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Later:
    """Stands in the content for a tensor that is written later under this key."""

    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        size = torch.Size(self.shape)
        stride = torch.empty(size, device="meta").stride()
        storage = _Storage(self.key, self.dtype, size.numel())
        hooks: OrderedDict[str, object] = OrderedDict()
        return torch._utils._rebuild_tensor_v2, (storage, 0, tuple(size), tuple(stride), False, hooks)


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: torch.dtype
    elements: int


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> tuple[object, ...] | None:
        if isinstance(obj, _Storage):
            return "storage", _STORAGES[obj.dtype], obj.key, "cpu", obj.elements
        return None


class TorchFile:
    """The content goes in first; every Later of it is then written once, in any order, before the end.

    torch.load reads the file, mapped too; every checksum of the zip is right. Raises OSError.
    """

    def __init__(self, file: BinaryIO, content: object):
        self._file = file
        self._archive = zipfile.ZipFile(file, "w")
        pickled = io.BytesIO()
        _Pickler(pickled, protocol=2).dump(content)
        self._add("data.pkl", pickled.getbuffer())
        self._add("byteorder", memoryview(b"little"))

    def write(self, key: str, tensor: Tensor) -> None:
        """The tensor of a Later, which must have its dtype and shape."""
        data = tensor.contiguous().view(-1).view(torch.uint8).numpy().data
        self._add(f"data/{key}", data)

    def __enter__(self) -> TorchFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._add("version", memoryview(b"3\n"))
        self._archive.close()

    def _add(self, name: str, data: memoryview) -> None:
        entry = zipfile.ZipInfo(f"{_ROOT}/{name}")
        entry.file_size = len(data)
        large = len(data) * 1.05 > zipfile.ZIP64_LIMIT
        # Behind the header of 30 bytes, the name and, of large entries, 20 bytes with their sizes.
        begin = self._file.tell() + 30 + len(entry.filename) + (20 if large else 0) + 4
        fill = -begin % _ALIGNMENT
        entry.extra = struct.pack("<HH", 0x4246, fill) + bytes(fill)
        with self._archive.open(entry, "w") as record:
            for start in range(0, len(data), _BLOCK_BYTES):
                record.write(data[start : start + _BLOCK_BYTES])

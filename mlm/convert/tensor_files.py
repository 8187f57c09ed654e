"""Files of named tensors, opened by their headers; a tensor that is asked for is a view of the map."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mlm.errors import ConfigError, Problem

if TYPE_CHECKING:
    from torch import Tensor

ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "BF16": 2,
    "F16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
"""Bytes of an element by the names that safetensors files use."""
DAMAGED = "get the file again"
_LONGEST_HEADER = 100_000_000


class TensorFile(Protocol):
    """One file. shapes: of every tensor in it, by name."""

    path: Path

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def tensor(self, name: str) -> Tensor:
        """One of them."""


class SafetensorsFile:
    """One safetensors file. Raises ConfigError when its header does not fit its size, or is none."""

    def __init__(self, path: Path):
        self.path = path
        self._begin, self._entries = _read_header(path)
        self.shapes: Mapping[str, tuple[int, ...]] = {n: tuple(e["shape"]) for n, e in self._entries.items()}

    def tensor(self, name: str) -> Tensor:
        import torch

        from mlm.convert.dtypes import DTYPES

        entry = self._entries[name]
        start, stop = entry["data_offsets"]
        part = self._mapped[self._begin + start : self._begin + stop]
        if part.storage_offset() % ITEM_BYTES[entry["dtype"]]:
            part = part.clone()  # a file without alignment; such views do not exist
        dtype: torch.dtype = DTYPES[entry["dtype"]]
        return part.view(dtype).view(self.shapes[name])

    @cached_property
    def _mapped(self) -> Tensor:
        from mlm.checkpoint.storage import mapped

        return mapped(self.path)


class PickledFile:
    """A dictionary of tensors as torch.save writes one. Raises ConfigError when it is something else."""

    def __init__(self, path: Path, *, allow_pickle: bool):
        import torch

        from mlm.convert.pickles import load_pickled

        self.path = path
        content = load_pickled(path, allow_pickle=allow_pickle)
        if not isinstance(content, Mapping) or not all(isinstance(t, torch.Tensor) for t in content.values()):
            raise ConfigError(
                Problem(str(path), "holds no dictionary of tensors", "name a file of weights alone")
            )
        self._tensors = content
        self.shapes: Mapping[str, tuple[int, ...]] = {n: tuple(t.shape) for n, t in content.items()}

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]


def _read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the tensors' bytes begin, and name -> dtype, shape and data_offsets."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
                raise ConfigError(
                    Problem(str(path), "is no safetensors file, or its beginning only", DAMAGED)
                )
            entries: dict[str, Any] = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        data = size - 8 - length
        for name, entry in entries.items():
            start, stop = entry["data_offsets"]
            elements = 1
            for dim in entry["shape"]:
                elements *= dim
            if not 0 <= start <= stop or stop - start != elements * ITEM_BYTES[entry["dtype"]]:
                raise ConfigError(
                    Problem(str(path), f"has a header that contradicts itself on {name}", DAMAGED)
                )
            if stop > data:
                wrong = f"ends before {name}: it has {size:,} bytes and needs {8 + length + stop:,}"
                raise ConfigError(Problem(str(path), wrong, DAMAGED))
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read ({error.strerror})", DAMAGED)) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        wrong = f"has a header that cannot be read ({type(error).__name__}: {error})"
        raise ConfigError(Problem(str(path), wrong, DAMAGED)) from None
    return 8 + length, entries

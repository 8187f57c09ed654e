"""Files of torch.save that others wrote: the one place where a foreign pickle is opened.

A pickle is a program. torch's weights-only reader runs none of it but the rebuilding of tensors and plain
containers; the allow-list below adds the few inert types that checkpoints carry besides.
"""

from __future__ import annotations

import argparse
import pickle
import re
import types
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlm.errors import ConfigError, Problem

NUMBERS = [
    np.dtypes.BoolDType,
    *(getattr(np.dtypes, f"{sign}Int{bits}DType") for bits in (8, 16, 32, 64) for sign in ("", "U")),
    *(getattr(np.dtypes, f"Float{bits}DType") for bits in (16, 32, 64)),
]
"""Kinds of NumPy numbers that a file may hold. Not among them: objects, which could be of any class."""


def _allow_list() -> list[Any]:
    """What a file may name besides tensors, dtypes and containers, each under all names it has gone by."""
    scalar = np.float64(0).__reduce__()[0]
    reconstruct = np.zeros(1).__reduce__()[0]
    return [
        argparse.Namespace,  # the options a trainer was started with
        np.dtype,
        np.ndarray,  # states of random number generators
        *NUMBERS,
        # NumPy 2 moved its inner modules; files know them by the name of their own time.
        *((scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
        *((reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    ]


def load_pickled(path: Path, *, allow_pickle: bool = False) -> object:
    """What torch.save wrote to the file, its tensors mapped from the file on the CPU.

    A name that is neither torch's own nor on the allow-list is refused, and nothing of it is looked up. With
    allow_pickle the file is read as pickle does, which runs whatever code it holds; classes of packages that
    are not installed become Inert objects. Files older than torch 1.6's zip format cannot be mapped and are
    read into memory. Raises ConfigError.
    """
    try:
        members = _members(path)
        if any(name.endswith("constants.pkl") for name in members):
            wrong = "is a TorchScript program, not a checkpoint"
            raise ConfigError(Problem(str(path), wrong, "name the file of the weights"))
        # What somebody zipped anew with compression has no tensor as it is anywhere in the file.
        mapped = bool(members) and set(members.values()) == {zipfile.ZIP_STORED}
        if allow_pickle:
            return torch.load(
                path, map_location="cpu", mmap=mapped, weights_only=False, pickle_module=_FORGIVING
            )
        with torch.serialization.safe_globals(_allow_list()), warnings.catch_warnings():
            # torch only suspects what is then either read or refused.
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            return torch.load(path, map_location="cpu", mmap=mapped, weights_only=True)
    except OSError as error:
        wrong = f"cannot be read ({error.strerror or error})"
        raise ConfigError(Problem(str(path), wrong, "name a file that you may read")) from None
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged file makes of a reader: there is no list of it
        raise ConfigError(_explained(path, error, allow_pickle)) from error


def _members(path: Path) -> dict[str, int]:
    """Files of the zip and how each is compressed; {} for the format before it."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return {}
    with zipfile.ZipFile(path) as archive:
        return {member.filename: member.compress_type for member in archive.infolist()}


def _explained(path: Path, error: Exception, allow_pickle: bool) -> Problem:
    """Why a file was not read, and what to do."""
    asked = re.search(r"GLOBAL (\S+) (?:was not an allowed|whose module)", str(error))
    if asked and not allow_pickle:
        return Problem(
            str(path),
            f"asks for {asked[1]}, which is code and not on the list of what a foreign file may use",
            "allow_pickle=true (mlm-convert: --allow-pickle) runs what the file says, for a file that you "
            "trust; otherwise save its weights alone where it was made",
        )
    odd = re.search(r"Unsupported operand \d+|[^:\n]*but got [^.\n]*", str(error))
    if odd and not allow_pickle:
        return Problem(
            str(path),
            f"is damaged, or pickled in a way that is not read without running it ({odd[0].strip()})",
            "compare its size with the original; allow_pickle=true (mlm-convert: --allow-pickle) reads it if "
            "you trust it",
        )
    reason = (str(error).strip() or "it ends too early").splitlines()[-1]
    return Problem(
        str(path),
        f"is damaged or no file of torch.save ({type(error).__name__}: {reason[:200]})",
        "compare its size with the original, or fetch it again",
    )


class Inert:
    """Stands for an object of a class that is not installed: takes whatever is done to it, does nothing."""

    def __init__(self, *arguments: object, **named: object):
        pass

    def __new__(cls, *arguments: object, **named: object) -> Inert:
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, item: object) -> None:
        pass

    def extend(self, items: object) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """pickle's own, for trusted files: checkpoints name classes of trainers that one need not have."""

    def find_class(self, module: str, name: str, /) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name, (Inert,), {"__module__": module})


def _load(file: Any, **arguments: Any) -> Any:
    return _Unpickler(file, **arguments).load()


_FORGIVING = types.ModuleType("mlm.convert.pickles.forgiving")
_FORGIVING.Unpickler = _Unpickler  # type: ignore[attr-defined]
_FORGIVING.load = _load  # type: ignore[attr-defined]

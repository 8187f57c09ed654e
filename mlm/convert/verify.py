"""Whether a checkpoint is whole: all bytes against checksums, its parts against each other. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from mlm.checkpoint.folder import TEMPORARY, step_of
from mlm.checkpoint.locate import CHECKPOINTS, resolve_checkpoint
from mlm.checkpoint.manifest import MANIFEST, damage, read_manifest
from mlm.checkpoint.state import read_state
from mlm.errors import MlmError

INDEX = "index.json"
_ITEM_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8}


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a checkpoint, a sentence each, or the facts of a sound one."""

    directory: Path
    wrong: list[str]
    facts: list[str]


def checkpoints_of(path: Path) -> list[Path]:
    """The directory itself when it is a step_N, else every step_N of that run, oldest first.

    Raises ConfigError when there is none.
    """
    place = path.expanduser().resolve()
    if place.is_dir() and step_of(place) is not None:
        return [place]
    folder = place if place.name == CHECKPOINTS else place / CHECKPOINTS
    steps = sorted((step, each) for each in folder.glob("step_*") if (step := step_of(each)) is not None)
    # With none it has the words for what is wrong with the path.
    return [each for _, each in steps] or [resolve_checkpoint(path).directory]


def verify(directory: Path) -> Verdict:
    """Read all of it."""
    wrong = damage(directory)
    if wrong:
        return Verdict(directory, wrong, [])
    try:
        manifest, state = read_manifest(directory), read_state(directory)
        tensors = json.loads((directory / INDEX).read_text(encoding="utf-8"))["tensors"]
        sizes = {name: record.bytes for name, record in manifest.files.items()}
        wrong = [flaw for name, tensor in tensors.items() for flaw in _flaws(name, tensor, sizes)]
        if state.step != manifest.step:
            wrong.append(f"state.json is of step {state.step:,}, {MANIFEST} of step {manifest.step:,}")
    except MlmError as error:
        return Verdict(directory, [str(error)], [])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Verdict(directory, [f"{directory / INDEX} cannot be read ({error})"], [])
    elements = sum(prod(tensor["shape"]) for tensor in tensors.values())
    beside = sorted({each.name for each in directory.iterdir()} - {*manifest.files, MANIFEST})
    facts = [
        f"{len(manifest.files)} files, {manifest.total_bytes / 2**20:,.1f} MiB, all checksums agree",
        f"{len(tensors)} tensors, {elements:,} elements, none missing",
        f"step {state.step:,}, {state.consumed_samples:,} samples consumed",
    ]
    if beside:
        facts.append(f"not part of it: {', '.join(beside)}")
    return Verdict(directory, wrong, [] if wrong else facts)


def leftovers(path: Path) -> list[Path]:
    """Checkpoints of a run that were being written when it ended; the next start of the run removes them."""
    folder = path if path.name == CHECKPOINTS else path / CHECKPOINTS
    return sorted(folder.glob(f"step_*{TEMPORARY}"))


def _flaws(name: str, tensor: Mapping[str, Any], sizes: Mapping[str, int]) -> list[str]:
    """What of a tensor the files cannot hold, or nobody has written."""
    chunks, shape = tensor["chunks"], tensor["shape"]
    if sum(prod(chunk["shape"]) for chunk in chunks) != prod(shape):
        return [f"{INDEX} has no place for all of {name}"]
    for chunk in chunks:
        end = chunk["start"] + prod(chunk["shape"]) * _ITEM_BYTES[tensor["dtype"]]
        if end > sizes.get(chunk["file"], 0):
            return [f"{INDEX} puts {name} beyond the end of {chunk['file']}"]
    return []

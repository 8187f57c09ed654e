"""The files of a Megatron-LM checkpoint: where they lie, one per rank, and what of each is a model's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm.errors import ConfigError, Problem

if TYPE_CHECKING:
    from torch import Tensor

TRACKER = "latest_checkpointed_iteration.txt"
RELEASE = "release"
NAMES = ("model_optim_rng.pt", "model_rng.pt")
"""Of a rank's file: with the optimizer in it, or where the optimizer is distributed over other files."""

_RANK = re.compile(r"mp_rank_(\d+)(?:_(\d+))?")


@dataclass(frozen=True)
class Shard:
    """One rank's file: its tensors by their names in full, its options and the version of its layout."""

    path: Path
    tensors: Mapping[str, Tensor]
    options: Mapping[str, Any]
    version: int


def look(path: Path) -> bool:
    """Whether the path looks like a checkpoint of Megatron-LM, or like a folder or a file of one."""
    if path.is_file():
        return path.name in (TRACKER, *NAMES)
    return (path / TRACKER).is_file() or any(_RANK.fullmatch(entry.name) for entry in _entries(path))


def folder_of_ranks(path: Path) -> Path:
    """The folder of mp_rank_* that a user means: of the iteration in the tracker file, or the one named.

    Raises ConfigError when there is none.
    """
    place = path.parent if path.is_file() else path
    if _RANK.fullmatch(place.name):
        place = place.parent
    if any(_RANK.fullmatch(entry.name) for entry in _entries(place)):
        return place
    tracker = place / TRACKER
    try:
        word = tracker.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        remedy = f"name a folder with {TRACKER}, or one with mp_rank_* folders"
        raise ConfigError(Problem(str(path), "is no checkpoint of Megatron-LM", remedy)) from None
    if word != RELEASE and not word.isdecimal():
        wrong = f"says {word[:40]!r} where an iteration or the word {RELEASE} must stand"
        raise ConfigError(Problem(str(tracker), wrong, "name the iter_* folder itself"))
    named = place / (word if word == RELEASE else f"iter_{int(word):07d}")
    if not any(_RANK.fullmatch(entry.name) for entry in _entries(named)):
        wrong = f"names {named.name}, which holds no mp_rank_* folder"
        raise ConfigError(Problem(str(tracker), wrong, "name the iter_* folder that you want"))
    return named


def rank_files(folder: Path) -> list[list[Path]]:
    """[pipeline stage][tensor-parallel rank] -> file. Raises ConfigError when the grid has holes."""
    found: dict[tuple[int, int], Path] = {}
    problems = []
    for entry in _entries(folder):
        rank = _RANK.fullmatch(entry.name)
        if rank is None:
            if entry.name.startswith("mp_rank_"):
                wrong = "is a kind of rank besides tensor and pipeline parallel (experts)"
                problems.append(Problem(str(entry), wrong, "such models have no place in mlm"))
            continue
        files = [entry / name for name in NAMES if (entry / name).is_file()]
        if not files:
            problems.append(Problem(str(entry), f"has no {NAMES[0]}", "copy the whole checkpoint"))
        else:
            found[int(rank[2] or 0), int(rank[1])] = files[0]
    stages, tp = (1 + max((place[i] for place in found), default=-1) for i in (0, 1))
    for stage in range(stages):
        lacking = [str(rank) for rank in range(tp) if (stage, rank) not in found]
        if lacking and not problems:
            of_stage = f" of pipeline stage {stage}" if stages > 1 else ""
            wrong = f"has ranks up to {tp - 1} and lacks rank {', '.join(lacking)}{of_stage}"
            problems.append(Problem(str(folder), wrong, "copy the whole checkpoint"))
    if problems:
        raise ConfigError(problems)
    return [[found[stage, rank] for rank in range(tp)] for stage in range(stages)]


def open_shard(path: Path, *, allow_pickle: bool) -> Shard:
    """A rank's file, its tensors mapped; the state of its optimizer is let go. Raises ConfigError."""
    from torch import Tensor

    from mlm.convert.pickles import load_pickled

    content = load_pickled(path, allow_pickle=allow_pickle)
    if not isinstance(content, dict) or "model" not in content:
        if isinstance(content, dict) and "model0" in content:
            wrong = "holds several pieces of an interleaved pipeline (model0, model1)"
            raise _refused(path, wrong, "save it again without virtual pipeline stages")
        found = ", ".join(map(str, content))[:200] if isinstance(content, dict) else type(content).__name__
        raise _refused(path, f"holds {found} where 'model' must be", "name a checkpoint of Megatron-LM")
    options = content.get("args")
    options = options if isinstance(options, dict) else getattr(options, "__dict__", {})
    version = content.get("checkpoint_version", 0)
    if not isinstance(version, (int, float)) or version < 0:
        raise _refused(path, f"has checkpoint_version={version!r}", "it must be 0, 1, 2 or 3")
    tensors = {}
    for name, value in _leaves(content["model"], ""):
        if isinstance(value, Tensor):
            tensors[name] = value
        elif value is not None and not name.endswith("_extra_state"):
            wrong = f"holds an object of class {type(value).__name__} as {name}"
            raise _refused(path, wrong, "mlm reads the classic format, files of plain tensors")
    return Shard(path, tensors, options, int(version))


def _refused(path: Path, wrong: str, remedy: str) -> ConfigError:
    return ConfigError(Problem(str(path), wrong, remedy))


def _leaves(content: object, name: str) -> Iterator[tuple[str, object]]:
    """Some of its parts are dictionaries in dictionaries, others have dots in their names already."""
    if not isinstance(content, dict):
        yield name, content
        return
    for key, value in content.items():
        yield from _leaves(value, f"{name}.{key}" if name else str(key))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []

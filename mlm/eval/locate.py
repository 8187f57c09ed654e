"""Where a checkpoint is and which run made it, found without opening the tensors; no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from math import gcd
from pathlib import Path

from mlm.config.checks import divisors
from mlm.config.names import alternatives
from mlm.config.schema import ModelConfig
from mlm.errors import ConfigError, Problem

_STEP = re.compile(r"step_(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its directory step_N and the run directory that says what is in it."""

    directory: Path
    run_dir: Path
    step: int

    @property
    def config_path(self) -> Path:
        """The resolved configuration that the run was made with."""
        return self.run_dir / "config.yaml"

    @property
    def data_path(self) -> Path:
        """The description of the run's data, and in it of the tokenizer."""
        return self.run_dir / "data.json"


def resolve_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint that `path` names: a run directory, for its newest step, or a step_N directory.

    Raises ConfigError when there is no such thing, or nothing complete in it.
    """
    where = f"checkpoint={path}"
    place = Path(path).expanduser().resolve()
    if not place.is_dir():
        wrong = "is a file" if place.exists() else "does not exist"
        raise _refused(where, wrong, _instead(place))
    if _is_complete(place):
        found = place
    elif _STEP.match(place.name):
        raise _refused(where, "is not complete", _instead(place))
    else:
        folder = place if place.name == "checkpoints" else place / "checkpoints"
        steps = _complete_steps(folder)
        if not steps:
            if not (place / "config.yaml").is_file() and not folder.is_dir():
                raise _refused(
                    where, "is neither a run directory nor a step_N directory of one", _instead(place)
                )
            raise _refused(where, "has no complete checkpoint", "train with train.save=true to the end")
        found = steps[-1]
    checkpoint = Checkpoint(found, found.parent.parent, _step(found))
    missing = [p.name for p in (checkpoint.config_path, checkpoint.data_path) if not p.is_file()]
    if missing:
        wrong = f"was taken out of its run directory: {checkpoint.run_dir} has no {' and no '.join(missing)}"
        raise _refused(where, wrong, "name it as RUN_DIR/checkpoints/step_N")
    return checkpoint


def tp_problems(model: ModelConfig, tp: int) -> list[Problem]:
    """Why a checkpoint of this shape cannot be split over tp ranks; [] when it can."""
    sizes = {
        "heads": model.num_heads,
        "columns of the MLP": model.ffn_hidden_size or 4 * model.hidden_size,
        "rows of the vocabulary": model.padded_vocab_size or model.vocab_size,
    }
    indivisible = [f"{size:,} {name}" for name, size in sizes.items() if size % tp]
    if not indivisible:
        return []
    possible = alternatives([str(d) for d in divisors(reduce(gcd, sizes.values()))])
    wrong = f"does not divide the checkpoint's {' and '.join(indivisible)}"
    return [Problem(f"tp={tp}", wrong, f"use tp={possible}")]


def _is_complete(directory: Path) -> bool:
    # Renamed to step_N when it was whole; .metadata is what its reader opens first.
    return _STEP.fullmatch(directory.name) is not None and (directory / ".metadata").is_file()


def _complete_steps(folder: Path) -> list[Path]:
    return sorted((d for d in folder.glob("step_*") if _is_complete(d)), key=_step)


def _step(directory: Path) -> int:
    match = _STEP.fullmatch(directory.name)
    assert match is not None, f"{directory} is a step directory"
    return int(match.group(1))


def _instead(place: Path) -> str:
    """The remedy: the complete checkpoint next to what was named, if there is one."""
    steps = _complete_steps(place.parent)
    if steps:
        return f"the newest complete one there is {steps[-1]}"
    return "name the run_dir of a finished run, or one of its checkpoints/step_N"


def _refused(where: str, wrong: str, remedy: str) -> ConfigError:
    return ConfigError(Problem(where, wrong, remedy))

"""Where a checkpoint is and what lies beside its tensors, found without opening them; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlm.checkpoint.best import BEST, read_best
from mlm.checkpoint.folder import complete_steps, step_folder, step_of
from mlm.checkpoint.manifest import MANIFEST
from mlm.errors import CheckpointError, ConfigError, Problem

CHECKPOINTS = "checkpoints"
"""The folder of a run's checkpoints, in its directory."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its directory step_N and the run directory it lies in."""

    directory: Path
    run_dir: Path
    step: int

    @property
    def config_path(self) -> Path:
        """The resolved configuration that the run was made with."""
        return self._beside("config.yaml")

    @property
    def data_path(self) -> Path:
        """The description of the run's data, and in it of the tokenizer."""
        return self._beside("data.json")

    def _beside(self, name: str) -> Path:
        """The checkpoint's own copy, which a later attempt of the run does not change; else the run's."""
        own = self.directory / name
        return own if own.is_file() else self.run_dir / name


def resolve_checkpoint(path: str | Path, key: str = "checkpoint") -> Checkpoint:
    """The checkpoint that `path` names: a run directory, for its newest step, or a step_N directory.

    checkpoints/best, the file, stands for the directory that it names.

    key: what path was given as, for messages. Raises ConfigError when there is no such thing, or nothing
    complete in it. Whether its files are whole is mlm.checkpoint.manifest.damage's to say.
    """
    where = f"{key}={path}"
    try:
        return _resolve(where, Path(path).expanduser().resolve())
    except OSError as error:
        wrong = f"cannot be read ({error.filename}: {error.strerror})"
        raise _refused(where, wrong, "name a directory that you may read") from None
    except CheckpointError as error:
        raise _refused(where, f"cannot be read: {error}", "name a directory that you may read") from None


def _resolve(where: str, place: Path) -> Checkpoint:
    if place.name == BEST and (best := read_best(place.parent)) is not None:
        place = step_folder(place.parent, best.step)
    if not place.is_dir():
        wrong = "is a file" if place.exists() else "does not exist"
        raise _refused(where, wrong, _instead(place))
    # A folder that may not be listed would look like an empty one.
    inside = {entry.name for entry in place.iterdir()}
    if step_of(place) is not None and MANIFEST in inside:
        found = place
    elif place.name.startswith("step_"):
        why = "that is not what whole ones are called" if MANIFEST in inside else f"it has no {MANIFEST}"
        raise _refused(where, f"is not complete ({why})", _instead(place))
    else:
        folder = place if place.name == CHECKPOINTS else place / CHECKPOINTS
        steps = complete_steps(folder)
        if not steps:
            if "config.yaml" not in inside and not folder.is_dir():
                raise _refused(
                    where, "is neither a run directory nor a step_N directory of one", _instead(place)
                )
            raise _refused(where, "has no complete checkpoint", "train with train.save=true to the end")
        found = steps[-1]
    step = step_of(found)
    assert step is not None, f"{found} is a step directory"
    checkpoint = Checkpoint(found, found.parent.parent, step)
    missing = [p.name for p in (checkpoint.config_path, checkpoint.data_path) if not p.is_file()]
    if missing:
        wrong = f"was taken out of its run directory: {checkpoint.run_dir} has no {' and no '.join(missing)}"
        raise _refused(where, wrong, "name it as RUN_DIR/checkpoints/step_N")
    return checkpoint


def _instead(place: Path) -> str:
    """The remedy: the complete checkpoint next to what was named, if there is one."""
    try:
        steps = complete_steps(place.parent)
    except CheckpointError:
        steps = []
    if steps:
        return f"the newest complete one there is {steps[-1]}"
    return "name the run_dir of a finished run, or one of its checkpoints/step_N"


def _refused(where: str, wrong: str, remedy: str) -> ConfigError:
    return ConfigError(Problem(where, wrong, remedy))

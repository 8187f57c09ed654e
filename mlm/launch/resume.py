"""From resume= and init_from= to what a run begins with; decided by the launcher alone. No torch."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from mlm.checkpoint.folder import TEMPORARY, newest, step_of
from mlm.checkpoint.locate import CHECKPOINTS, Checkpoint, resolve_checkpoint
from mlm.checkpoint.origin import Origin, read_origin
from mlm.checkpoint.state import TrainingState, read_state
from mlm.config.schema import TrainConfig
from mlm.errors import CheckpointError, ConfigError, MlmError, Problem
from mlm.launch.checkpoint_checks import sentences
from mlm.launch.command import Say
from mlm.launch.initial_weights import (
    InitialWeights,
    contents_problems,
    described,
    resolve_weights,
    weights_problems,
)
from mlm.launch.resume_checks import compared, weights_only_problems
from mlm.launch.rundir import holds_run

AUTO, NEVER = "auto", "never"
DAMAGED = ".damaged"
"""Behind the name of a checkpoint that was passed over: its number is needed for a new one."""


@dataclass(frozen=True)
class Beginning:
    """What the next attempt of a run begins with.

    in_place: whether run_dir is that of a run which goes on. checkpoint and state: where training goes on;
    None and zeros: at step 0. weights: those that it starts with there. passed_over:
    checkpoints of run_dir that are not whole.
    """

    in_place: bool
    checkpoint: Checkpoint | None = None
    state: TrainingState = field(default_factory=TrainingState)
    weights: InitialWeights | None = None
    passed_over: tuple[Path, ...] = ()

    def settle(self, run_dir: Path, say: Say) -> None:
        """Make run_dir ready for the attempt: put aside what an earlier one left, and write resume.json."""
        before, attempt = read_origin(run_dir), 1
        if before is not None or (run_dir / "config.yaml").exists():
            attempt = (before or Origin()).attempt + 1
            _put_aside(run_dir, attempt - 1)
            _clear(run_dir / CHECKPOINTS, self.passed_over, say)
        weights = None if self.weights is None else str(self.weights.path)
        Origin(attempt, _text(self.checkpoint), weights).write(run_dir)


def goes_on_in_place(config: TrainConfig, run_dir: Path) -> bool:
    """Whether the configuration continues the run that run_dir already holds."""
    if config.resume == NEVER or not holds_run(run_dir):
        return False
    if config.resume == AUTO:
        return True
    try:
        return resolve_checkpoint(config.resume).run_dir == run_dir.resolve()
    except ConfigError:
        return False


def problems(config: TrainConfig, resolved: TrainConfig | None, run_dir: Path) -> list[Problem]:
    """What speaks against resume= and init_from= as far as names, sizes and configurations tell.

    resolved: the same configuration without its nulls; None where it cannot be laid out, and then nothing is
    compared. Cheap, and without a word: what a checkpoint's files hold is looked at by `begin`.
    """
    found: list[Problem] = []
    checkpoint: Checkpoint | None = None
    try:
        if config.resume == AUTO and goes_on_in_place(config, run_dir):
            candidate = newest(run_dir / CHECKPOINTS, contents=False)
            if candidate.directory is not None:
                checkpoint = resolve_checkpoint(candidate.directory, "resume")
            elif not candidate.damaged:
                checkpoint = _as_before(run_dir).checkpoint
        elif config.resume not in (AUTO, NEVER):
            checkpoint = resolve_checkpoint(config.resume, "resume")
            found += sentences("resume", checkpoint, contents=False)
            found += _newer(checkpoint, run_dir)
    except ConfigError as error:
        found += error.problems
    except CheckpointError as error:
        found.append(Problem(f"resume={config.resume}", str(error), "make it readable, or name another"))
    if checkpoint is not None and not found:
        found += weights_only_problems(checkpoint)
    if checkpoint is not None and resolved is not None and not found:
        found += compared(checkpoint, resolved)[1]
    if config.init_from is not None and checkpoint is None:
        found += weights_problems(config.init_from, resolved, config)
    return found


def outlook(config: TrainConfig, run_dir: Path) -> str:
    """What the run would begin with, as far as names tell."""
    try:
        if config.resume == AUTO and goes_on_in_place(config, run_dir):
            candidate = newest(run_dir / CHECKPOINTS, contents=False).directory
        elif config.resume not in (AUTO, NEVER):
            candidate = resolve_checkpoint(config.resume).directory
        else:
            candidate = None
        if candidate is None and config.init_from is not None:
            return f"at step 0, with the weights of {resolve_weights(config.init_from).path}"
    except MlmError:
        return "nothing: what it was to begin with cannot be used"
    if candidate is None:
        return "at step 0, with random weights"
    return f"with step {(step_of(candidate) or 0) + 1:,}, from {candidate}"


def begin(config: TrainConfig, run_dir: Path, say: Say, *, in_place: bool) -> Beginning:
    """Choose the checkpoint, every byte of it compared with its checksum, and say which.

    A run that goes on and has no checkpoint yet begins as it did before, with that of another run if need be.
    in_place: as goes_on_in_place found it. Called by one process, which alone is at work in run_dir. Raises
    ConfigError when there is nothing whole to go on from: a run that was to be continued is never begun anew
    for that.
    """
    if config.resume == AUTO and in_place:
        beginning = _newest_of(run_dir, say)
    elif config.resume not in (AUTO, NEVER):
        checkpoint = resolve_checkpoint(config.resume, "resume")
        found = sentences("resume", checkpoint, contents=True)
        if found:
            raise ConfigError(found)
        beginning = Beginning(in_place, checkpoint, _state(checkpoint))
    else:
        beginning = Beginning(in_place)
    if beginning.checkpoint is None and config.init_from is not None:
        weights = resolve_weights(config.init_from)
        found = contents_problems(weights, config)
        if found:
            raise ConfigError(found)
        beginning = Beginning(in_place, weights=weights)
    if beginning.weights is not None:
        say(described(beginning.weights, config))
    elif beginning.checkpoint is None and config.resume == AUTO:
        say(f"warning: no checkpoint found in {run_dir}, starting at step 0")
    return beginning


def restart(run_dir: Path, say: Say) -> Path | None:
    """Let the run in run_dir begin again as its next attempt, from its newest whole checkpoint.

    Without one it begins as the attempt before did. Returns the checkpoint. For a launcher that still holds
    the run and whose workers are gone. Raises ConfigError when checkpoints are there and none is whole.
    """
    beginning = _newest_of(run_dir, say)
    beginning.settle(run_dir, say)
    return None if beginning.checkpoint is None else beginning.checkpoint.directory


def _newest_of(run_dir: Path, say: Say) -> Beginning:
    found = newest(run_dir / CHECKPOINTS)
    for sentence in found.passed_over:
        say(f"warning: passing over {sentence.replace(f'{run_dir}/', '')}")
    if found.directory is None:
        if found.damaged:
            wrong = f"has {len(found.damaged)} checkpoints, and none of them is whole"
            if len(found.damaged) == 1:
                wrong = f"has one checkpoint, and it is damaged: {found.passed_over[0]}"
            remedy = f"move {run_dir / CHECKPOINTS} away to begin again at step 0, or use resume=PATH"
            raise ConfigError(Problem(f"run_dir={run_dir}", wrong, remedy))
        beginning = _as_before(run_dir)
        weights = None if beginning.weights is None else beginning.weights.checkpoint
        for key, checkpoint in (("resume", beginning.checkpoint), ("init_from", weights)):
            damaged = [] if checkpoint is None else sentences(key, checkpoint, contents=True)
            if damaged:
                raise ConfigError(damaged)
        return beginning
    checkpoint = resolve_checkpoint(found.directory, "resume")
    return Beginning(True, checkpoint, _state(checkpoint), passed_over=tuple(found.damaged))


def _as_before(run_dir: Path) -> Beginning:
    """What the latest attempt in run_dir began with. Raises ConfigError when that is gone."""
    before = read_origin(run_dir) or Origin()
    if before.checkpoint is not None:
        checkpoint = resolve_checkpoint(before.checkpoint, "resume")
        return Beginning(True, checkpoint, _state(checkpoint))
    if before.weights is not None:
        return Beginning(True, weights=resolve_weights(before.weights))
    return Beginning(True)


def _state(checkpoint: Checkpoint) -> TrainingState:
    try:
        return read_state(checkpoint.directory)
    except CheckpointError as error:
        raise ConfigError(
            Problem(str(checkpoint.directory), f"cannot be resumed: {error}", "name another")
        ) from None


def _newer(checkpoint: Checkpoint, run_dir: Path) -> list[Problem]:
    """An earlier checkpoint of a run cannot be continued among later ones, which it would have to replace."""
    if checkpoint.run_dir != run_dir.resolve():
        return []
    latest = max(step_of(path) or 0 for path in checkpoint.directory.parent.glob("step_*"))
    if latest <= checkpoint.step:
        return []
    wrong = f"already holds step_{latest}, which training from step {checkpoint.step} would have to replace"
    return [Problem(f"run_dir={run_dir}", wrong, "use another run_dir, or resume=auto to go on from the end")]


def _put_aside(run_dir: Path, attempt: int) -> None:
    """Keep the files of an earlier attempt in attempts/N; its metrics and log are continued."""
    target = run_dir / "attempts" / str(attempt)
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.yaml", "overrides.txt", "environment.json", "data.json"):
        if (run_dir / name).is_file():
            shutil.copyfile(run_dir / name, target / name)
    # Of the run's end and of its failures, which are not this attempt's.
    for name in ("summary.json", "errors"):
        if (run_dir / name).exists() and not (target / name).exists():
            (run_dir / name).rename(target / name)


def _clear(folder: Path, damaged: tuple[Path, ...], say: Say) -> None:
    """Remove what saves that were cut short left behind, and rename the damaged checkpoints."""
    for path in folder.glob(f"*{TEMPORARY}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            say(f"removed {path.name}, a checkpoint that was never completed")
        else:
            path.unlink(missing_ok=True)
    for path in damaged:
        aside = path.with_name(path.name + DAMAGED)
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)


def _text(checkpoint: Checkpoint | None) -> str | None:
    return None if checkpoint is None else str(checkpoint.directory)

"""Whether a checkpoint can be what a configuration begins with: its files, its model, its data. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlm.checkpoint.locate import Checkpoint
from mlm.checkpoint.manifest import WEIGHTS_ONLY, read_manifest
from mlm.config.schema import TrainConfig
from mlm.config.store import load_config
from mlm.data.prepared import PreparedData
from mlm.errors import CheckpointError, ConfigError, Problem
from mlm.launch import changes
from mlm.launch.checkpoint_checks import data_of, other_tokenizer, sentences
from mlm.launch.command import Say
from mlm.launch.initial_weights import tokenizer_problems

if TYPE_CHECKING:
    from mlm.launch.resume import Beginning


def check(beginning: Beginning, config: TrainConfig, data: PreparedData, say: Say) -> None:
    """Compare the resolved configuration and the data with those of the checkpoint, and say what changed.

    Raises ConfigError with every change that cannot be.
    """
    if beginning.weights is not None:
        found = tokenizer_problems(beginning.weights, config, data)
        if found:
            raise ConfigError(found)
    checkpoint, state = beginning.checkpoint, beginning.state
    if checkpoint is None:
        return
    changed, refused = compared(checkpoint, config)
    refused += other_tokenizer(checkpoint, data)
    if refused:
        raise ConfigError(refused)
    changed += _data_changes(checkpoint, data, state.consumed_samples)
    say(
        f"going on from {checkpoint.directory} (all checksums match): step {state.step:,} is done, "
        f"the next sample is number {state.consumed_samples:,}"
    )
    if changed:
        say("changed since then, and what it means:")
        for line in changes.table(changed):
            say(line)
    for change in changed:
        if change.key == "train.global_batch_size":
            say(f"warning: the batch changes from {change.then} to {change.now} samples a step")
    if state.step == config.train.steps:
        say(f"all {state.step:,} steps are done, only what follows them is left; train.steps= trains on")


def compared(checkpoint: Checkpoint, config: TrainConfig) -> tuple[list[changes.Change], list[Problem]]:
    """The changes of configuration, and the problems of those that cannot be."""
    try:
        found = changes.changes(load_config(checkpoint.config_path), config)
    except ConfigError as error:
        damaged = sentences("resume", checkpoint, contents=True)
        # With resume=auto a damaged checkpoint is passed over, once it is looked at.
        return [], [] if damaged and config.resume == "auto" else damaged or error.problems
    refused = changes.refusals(found, checkpoint.directory.name)
    if config.resume != "auto":
        # That it does not go with resume=PATH is said already, of the configuration alone.
        refused = [problem for problem in refused if not problem.where.startswith("init_from=")]
    if config.train.steps < checkpoint.step:
        wrong = f"is less than the {checkpoint.step:,} steps that {checkpoint.directory.name} has behind it"
        refused.append(Problem(f"train.steps={config.train.steps}", wrong, "use more steps"))
    # Those of profile=true alone are the last ones, which come only when there are steps left.
    past = [step for step in config.profile_steps or [] if step <= checkpoint.step]
    if config.profile and past and config.train.steps > checkpoint.step:
        wrong = f"names step {past[0]}, which {checkpoint.directory.name} has behind it"
        where = f"profile_steps=[{','.join(map(str, config.profile_steps or []))}]"
        refused.append(Problem(where, wrong, f"use steps from {checkpoint.step + 1} on"))
    return found, refused


def weights_only_problems(checkpoint: Checkpoint) -> list[Problem]:
    """Of a checkpoint that training cannot go on from, for want of an optimizer's state."""
    try:
        about = read_manifest(checkpoint.directory).about
    except CheckpointError:
        return []  # said elsewhere, with all that is damaged
    if not about.get(WEIGHTS_ONLY):
        return []
    wrong = "holds weights only, and no moments of an optimizer to go on with"
    remedy = f"use init_from={checkpoint.run_dir} and another run_dir to train with them from step 0"
    return [Problem(f"resume={checkpoint.directory}", wrong, remedy)]


def _data_changes(checkpoint: Checkpoint, data: PreparedData, consumed: int) -> list[changes.Change]:
    before = data_of(checkpoint)
    if before.fingerprint == data.fingerprint:
        if before.source == data.source:
            return []
        rule = changes.Rule(changes.Effect.EXACT, "the same tokens, split at the same places")
        return [changes.Change("data", before.source, data.source, rule)]
    rule = changes.Rule(
        changes.Effect.ALLOWED, f"goes on at sample number {consumed:,} of the order that these tokens have"
    )
    shown = [f"{d.source}, {d.tokens['train']:,} tokens" for d in (before, data)]
    return [changes.Change("data", shown[0], shown[1], rule)]

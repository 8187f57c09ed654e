"""Fine-tuned checkpoints on their task's examples: what is evaluated, on which files, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlm.config.schema import EvalConfig, TrainConfig
from mlm.config.store import load_config
from mlm.errors import ConfigError, MlmError, Problem
from mlm.eval.locate import Checkpoint, resolve_checkpoint, tp_problems
from mlm.finetune.tasks import TASKS


@dataclass(frozen=True)
class Member:
    """A checkpoint that is asked, alone or in an ensemble, and the configuration of its run."""

    checkpoint: Checkpoint
    config: TrainConfig

    @property
    def limit(self) -> int:
        """Tokens of a sequence."""
        return self.config.finetune.seq_length or self.config.model.seq_length


def is_labelled(config: EvalConfig) -> bool:
    """Whether a task of fine-tuning is among those asked for."""
    return any(name in TASKS for name in config.tasks)


def members(config: EvalConfig) -> list[Member]:
    """The checkpoint and those of the ensemble. Raises ConfigError for what cannot be found or read."""
    found, problems = [], list[Problem]()
    keys = [("checkpoint", config.checkpoint or ""), *(("ensemble", path) for path in config.ensemble)]
    for key, path in keys:
        try:
            checkpoint = resolve_checkpoint(path, key)
            found.append(Member(checkpoint, load_config(checkpoint.config_path)))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return found


def examples_path(config: EvalConfig, member: Member) -> Path | None:
    """The examples: task_paths.TASK, else those that the run was evaluated on."""
    path = config.task_paths.get(config.tasks[0], member.config.finetune.dev_path)
    return None if path is None else Path(path).expanduser().absolute()


def labelled_problems(config: EvalConfig) -> list[Problem]:
    """Everything that stands against evaluating a fine-tuned checkpoint, its examples included."""
    name, *others = config.tasks
    if others:
        where = f"tasks=[{','.join(config.tasks)}]"
        wrong = "names several, and a fine-tuned checkpoint has learned one"
        return [Problem(where, wrong, "name the task of the checkpoint alone")]
    try:
        asked = members(config)
    except ConfigError as error:
        return error.problems
    found = list(_unfit(name, asked, max(1, config.tp)))
    found += _stray_paths(config.task_paths, name)
    path = examples_path(config, asked[0])
    if path is None:
        found.append(
            Problem(f"task_paths.{name}", "is not set", f"give the examples, task_paths.{name}=PATH")
        )
        return found
    try:
        TASKS[name].read(path, training=False)
    except ConfigError as error:
        found += error.problems
    except MlmError as error:
        found.append(getattr(error, "problem", Problem(str(path), str(error), "name another")))
    return found


def _unfit(name: str, asked: list[Member], tp: int) -> list[Problem]:
    first, found = asked[0], list[Problem]()
    for number, member in enumerate(asked):
        key = "ensemble" if number else "checkpoint"
        where, objective = f"{key}={member.checkpoint.directory}", member.config.objective.name
        if objective != name:
            wrong = f"was trained for {objective}, not for {name}"
            remedy = f"use tasks=[{objective}]" if objective in TASKS else f"fine-tune it: finetune={name}"
            found.append(Problem(where, wrong, remedy))
        elif name.startswith("squad") and member.limit != first.limit:
            wrong = f"has windows of {member.limit} tokens, and the first of {first.limit}"
            found.append(Problem(where, wrong, "use checkpoints with one finetune.seq_length"))
        found += tp_problems(member.config.model, tp)
    return list(dict.fromkeys(found))


def _stray_paths(task_paths: Mapping[str, str], name: str) -> list[Problem]:
    return [
        Problem(f"task_paths.{key}={path}", f"is no file of {name}", f"use task_paths.{name}=PATH")
        for key, path in task_paths.items()
        if key != name
    ]

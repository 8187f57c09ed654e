"""What stands against an evaluation before any process starts: names, files, the checkpoint. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mlm.config.names import alternatives, nearest
from mlm.config.schema import EvalConfig, TrainConfig
from mlm.config.store import load_config
from mlm.errors import ConfigError, Problem
from mlm.eval.files import file_keys, find_files
from mlm.eval.labelled import is_labelled, labelled_problems
from mlm.eval.locate import Checkpoint, resolve_checkpoint, tp_problems
from mlm.eval.tasks import TASKS
from mlm.finetune.tasks import TASKS as LABELLED

_NAME_A_RUN = "give it: checkpoint=RUN_DIR, or checkpoint=RUN_DIR/checkpoints/step_N"


def problems(config: EvalConfig) -> list[Problem]:
    """Everything that stands against the evaluation, from the checkpoint to the last data file."""
    if is_labelled(config) and config.checkpoint is not None:
        return labelled_problems(config)
    found = checkpoint_problems(config.checkpoint, config.tp)
    if not found and config.checkpoint is not None:
        _, trained = read_checkpoint(config.checkpoint)
        found += _not_for_text(config.tasks, trained.objective.name)
    if config.ensemble:
        where = f"ensemble=[{','.join(config.ensemble)}]"
        found.append(Problem(where, f"is for {alternatives(list(LABELLED))}", "leave it out"))
    if not config.tasks:
        found.append(Problem("tasks=[]", "names nothing to measure", f"use tasks=[{','.join(TASKS)}]"))
    return found + task_problems(config.tasks, config.task_paths)


def checkpoint_problems(path: str | None, tp: int) -> list[Problem]:
    """Why the checkpoint that path names cannot be read over tp ranks."""
    if path is None:
        return [Problem("checkpoint", "is not set", _NAME_A_RUN)]
    try:
        _, trained = read_checkpoint(path)
    except ConfigError as error:
        return error.problems
    return tp_problems(trained.model, max(1, tp))


def _not_for_text(tasks: Sequence[str], objective: str) -> list[Problem]:
    """Of a checkpoint that predicts no next token."""
    if objective == "next_token":
        return []
    where = f"tasks=[{','.join(tasks)}]"
    remedy = f"use tasks=[{objective}]" if objective in LABELLED else "name a checkpoint of a GPT-2"
    wrong = f"needs a model of text from left to right, and this one was trained for {objective}"
    return [Problem(where, wrong, remedy)]


def read_checkpoint(path: str) -> tuple[Checkpoint, TrainConfig]:
    """The checkpoint that path names and the configuration of its run. Raises ConfigError."""
    checkpoint = resolve_checkpoint(path)
    return checkpoint, load_config(checkpoint.config_path)


def task_problems(tasks: Sequence[str], task_paths: Mapping[str, str], *, prefix: str = "") -> list[Problem]:
    """What is wrong with names of tasks and with their data files. prefix: of keys, `eval.` in training."""
    return [*_name_problems(tasks, prefix), *_path_problems(tasks, task_paths, prefix)]


def task_files(name: str, task_paths: Mapping[str, str]) -> dict[str, Path]:
    """Role -> path of each of a task's files that there is. Raises ConfigError when one is missing."""
    paths, found = find_files(name, TASKS[name].default_files, task_paths)
    if found:
        raise ConfigError(found)
    return paths


def settled_paths(tasks: Sequence[str], task_paths: Mapping[str, str]) -> dict[str, str]:
    """task_paths with every file that is going to be read, wherever it was found. Raises as task_files."""
    settled: dict[str, str] = {}
    for name in tasks:
        paths = task_files(name, task_paths)
        keys = file_keys(name, TASKS[name].default_files)
        settled |= {key: str(paths[file.role]) for key, file in keys.items() if file.role in paths}
    return settled


def _name_problems(tasks: Sequence[str], prefix: str) -> Iterator[Problem]:
    where = f"{prefix}tasks=[{','.join(tasks)}]"
    for name in dict.fromkeys(tasks):
        if name not in TASKS:
            known = [*TASKS, *LABELLED] if not prefix else list(TASKS)
            close = nearest(name, known, limit=1)
            remedy = f"use {close[0]}" if close else f"use {alternatives(known)}"
            yield Problem(where, f"names {name}, which is no task", remedy)
        elif tasks.count(name) > 1:
            yield Problem(where, f"names {name} twice", "name it once")


def _path_problems(tasks: Sequence[str], task_paths: Mapping[str, str], prefix: str) -> Iterator[Problem]:
    owners = {key: name for name, task in TASKS.items() for key in file_keys(name, task.default_files)}
    for key, path in task_paths.items():
        where = f"{prefix}task_paths.{key}={path}"
        if key not in owners:
            close = nearest(key, owners, limit=1) or list(owners)
            use = alternatives([f"{prefix}task_paths.{name}" for name in close])
            yield Problem(where, "is no file of any task", f"use {use}")
        elif owners[key] not in tasks:
            yield Problem(where, f"is a file of {owners[key]}, which is not among the tasks", "leave it out")
    for name in dict.fromkeys(tasks):
        if name in TASKS:
            yield from find_files(name, TASKS[name].default_files, task_paths, prefix)[1]

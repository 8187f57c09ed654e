"""finetune=TASK as the launcher sees it: what follows from its files and speaks against them. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlm.config.schema import FinetuneRecipe, TokenizerConfig, TrainConfig
from mlm.data.bad_data import BadData
from mlm.data.checks import vocabulary_problem
from mlm.data.prepared import PreparedData
from mlm.data.tokenizers import Tokenizer
from mlm.data.tokenizers.configured import build
from mlm.errors import ConfigError, MlmError, Problem
from mlm.finetune.prepared import fingerprint_of, mean_length, prepared
from mlm.finetune.tasks import TASKS
from mlm.plan.parameters import count_parameters

OPTION = "finetune"


@dataclass(frozen=True)
class _Files:
    """Both files of a fine-tuning, read and encoded."""

    train: Any
    dev: Any
    tokenizer: Tokenizer
    fingerprint: str


def completed(config: TrainConfig) -> TrainConfig:
    """The configuration with the objective of its task, and zeros and nulls filled by recipe and files.

    train.global_batch_size, optim.lr and finetune.epochs come from the recipe for a model of this size;
    train.steps from the epochs and the samples of the training file, optim.warmup_steps from its share of
    them, train.eval_interval from an epoch. What was typed stays. Files that cannot be read leave one step.
    """
    finetune = config.finetune
    if finetune.task is None:
        return config
    train, optim = config.train, config.optim
    recipe = _recipe(config)
    batch, lr, epochs = train.global_batch_size, optim.lr, finetune.epochs
    said = finetune.recipe
    if recipe is not None:
        batch, lr = batch or recipe.batch, lr or recipe.lr
        epochs = recipe.epochs if epochs is None else epochs
        changed = [
            f"{name} is {now:g}"
            for name, now, of in (
                ("batch", batch, recipe.batch),
                ("lr", lr, recipe.lr),
                ("epochs", epochs, recipe.epochs),
            )
            if now != of
        ]
        said = said or (
            f"Table 6, {recipe.model}: batch {recipe.batch}, lr {recipe.lr:g}, {recipe.epochs:g} epochs"
            + (f"; here {', '.join(changed)}" if changed else "")
        )
    samples = _samples(config)
    per_epoch = max(1, math.ceil(samples / batch)) if batch else 1
    steps = train.steps or max(1, math.ceil(samples * (epochs or 0) / batch) if batch else 1)
    share = min(steps - 1, math.ceil(finetune.warmup_share * steps))
    return replace(
        config,
        objective=replace(config.objective, name=finetune.task),
        data=replace(config.data, name=finetune.task, path=None, blend=None),
        optim=replace(optim, lr=lr, warmup_steps=optim.warmup_steps or share),
        train=replace(
            train,
            steps=steps,
            global_batch_size=batch,
            micro_batch_size=math.gcd(train.micro_batch_size, batch) if recipe else train.micro_batch_size,
            eval_interval=train.eval_interval or per_epoch,
        ),
        finetune=replace(finetune, epochs=epochs, recipe=said),
    )


def problems(config: TrainConfig) -> list[Problem]:
    """What the files of a fine-tuning, and keys that it does not go with, have against it."""
    finetune, found = config.finetune, []
    for key, path, what in (
        ("train_path", finetune.train_path, "training"),
        ("dev_path", finetune.dev_path, "development"),
    ):
        if path is None:
            remedy = f"give the task's file or folder, finetune.{key}=PATH"
            found.append(Problem(f"finetune.{key}", f"is not set, and names the {what} examples", remedy))
    if config.init_from is None and config.resume == "never":
        wrong = "starts from trained weights, and none are named"
        found.append(Problem(f"{OPTION}={finetune.task}", wrong, "add init_from=CHECKPOINT"))
    limit = finetune.seq_length
    if limit is not None and limit > config.model.seq_length:
        wrong = f"is more than the model's {config.model.seq_length} positions"
        remedy = f"use finetune.seq_length={config.model.seq_length} or less"
        found.append(Problem(f"finetune.seq_length={limit}", wrong, remedy))
    for key in ("eval_samples", "final_eval_samples"):
        if (value := getattr(config.train, key)) is not None:
            wrong = "is for text; the figures of a task are those of all its development examples"
            found.append(Problem(f"train.{key}={value}", wrong, f"use train.{key}=null"))
    if config.eval.tasks:
        wrong = "score text, which this model no longer writes"
        found.append(Problem("eval.tasks", wrong, "leave them out"))
    if found:
        return found
    try:
        files = _files(config)
    except BadData as error:
        return [error.problem]
    except ConfigError as error:
        return error.problems
    tokenizer, rows = files.tokenizer, config.model.vocab_size
    mismatch = vocabulary_problem(f"the {tokenizer.kind} tokenizer", tokenizer.vocab_size, rows)
    return [] if mismatch is None else [mismatch]


def sequences(config: TrainConfig) -> tuple[int, int]:
    """(Sequences of a step, their mean length); of files that `problems` has nothing against."""
    train = _files(config).train
    return config.train.global_batch_size * train.sequences_per_sample, mean_length(train)


def rows(config: TrainConfig) -> list[tuple[str, str]]:
    """The run, for a plan; of files that `problems` has nothing against."""
    files, finetune, train = _files(config), config.finetune, config.train
    epochs = train.steps * train.global_batch_size / len(files.train)
    return [
        ("task", TASKS[finetune.task or ""].summary),
        ("recipe", finetune.recipe or "as typed"),
        ("steps", f"{train.steps:,}, {epochs:,.2f} epochs of {len(files.train):,} samples"),
        ("training", f"{finetune.train_path}; {files.train.describe_cuts()}"),
        ("development", f"{finetune.dev_path}; {files.dev.describe_cuts()}"),
    ]


def prepare(config: TrainConfig) -> PreparedData:
    """The data of the run. Raises ConfigError or DataError."""
    files, finetune = _files(config), config.finetune
    assert finetune.task is not None
    return prepared(
        finetune.task,
        f"{finetune.train_path}, evaluated on {finetune.dev_path}",
        files.fingerprint,
        len(files.train),
        len(files.dev),
        files.tokenizer.describe(),
        _limit(config),
        config.model.vocab_size,
    )


def _recipe(config: TrainConfig) -> FinetuneRecipe | None:
    """The recipe for the size that is nearest in proportion; None where there are none."""
    try:
        size = count_parameters(config.model).total
    except (ValueError, ZeroDivisionError):
        return None  # a shape that is refused elsewhere
    recipes = [each for each in config.finetune.recipes if each.parameters > 0]
    return min(recipes, key=lambda each: abs(math.log(each.parameters / max(1, size))), default=None)


def _samples(config: TrainConfig) -> int:
    """Of the training file; 1 where it cannot be read, which `problems` reports."""
    if config.finetune.train_path is None or config.finetune.dev_path is None:
        return 1
    try:
        return len(_files(config).train)
    except MlmError:
        return 1


def _limit(config: TrainConfig) -> int:
    return config.finetune.seq_length or config.model.seq_length


def _files(config: TrainConfig) -> _Files:
    """Raises BadData or ConfigError naming every damaged record of both files."""
    finetune, tokenizer = config.finetune, config.tokenizer
    assert finetune.task is not None
    assert finetune.train_path is not None
    assert finetune.dev_path is not None
    return _read(
        finetune.task,
        finetune.train_path,
        finetune.dev_path,
        (tokenizer.kind, tokenizer.path, tokenizer.vocab_size),
        _limit(config),
    )


@lru_cache(maxsize=4)
def _read(
    task: str, train_path: str, dev_path: str, tokenizer: tuple[str, str | None, int | None], limit: int
) -> _Files:
    """Once for all that ask: configurations are completed, checked and prepared, and sweeps have many."""
    kind, path, vocab_size = tokenizer
    loaded = build(TokenizerConfig(kind=kind, path=path, vocab_size=vocab_size), "", Path())
    examples, found = [], list[Problem]()
    for key, file, training in (("train_path", train_path, True), ("dev_path", dev_path, False)):
        try:
            examples.append(TASKS[task].read(Path(file), training=training).examples)
        except BadData as error:
            problem = error.problem
            # Of the file as a whole; what stands in it is named by its line.
            whole = problem.where == file
            found.append(replace(problem, where=f"finetune.{key}={file}") if whole else problem)
        except ConfigError as error:
            found += error.problems
    if found:
        raise ConfigError(list(dict.fromkeys(found)))
    train, dev = (TASKS[task].encode(each, loaded, limit) for each in examples)
    return _Files(train, dev, loaded, fingerprint_of(*examples))

"""The arguments of the model `mlm` and everything that speaks against them. Imports no torch, no lm_eval."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlm.config.checks import check_evaluation
from mlm.config.command import EVAL
from mlm.config.compose import compose
from mlm.config.names import alternatives, nearest
from mlm.config.schema import EvalConfig, ModelConfig
from mlm.errors import ConfigError, Problem
from mlm.eval.checks import read_checkpoint
from mlm.eval.locate import Checkpoint, tp_problems
from mlm.generate.checks import WRITERS
from mlm.launch.checkpoint_checks import sentences
from mlm.launch.fit import weight_problems
from mlm.launch.machine import Machine, detect_machine
from mlm.launch.preflight import Launch, place
from mlm.launch.step import find_step

MAX_GEN_TOKS = 256
"""New tokens of a request that does not say how many: lm_eval's own number."""
FAILURE_GRACE_S = 10.0


@dataclass(frozen=True)
class _Argument:
    """kind: of its value; key: what the configuration calls it, where that is another name."""

    kind: type
    key: str = ""


ARGUMENTS: dict[str, _Argument] = {
    "checkpoint": _Argument(str),
    "tp": _Argument(int),
    "dp": _Argument(int),
    "precision": _Argument(str, "precision.name"),
    "device": _Argument(str, "launch.device"),
    "threads": _Argument(int, "launch.threads"),
    "batch_tokens": _Argument(int),
    "max_length": _Argument(int),
    "max_gen_toks": _Argument(int),
    "prefix_token_id": _Argument(int),
    "seed": _Argument(int),
}
"""What --model_args takes."""


@dataclass(frozen=True)
class Settings:
    """Arguments that nothing speaks against.

    config: for the workers, in which device, threads, dp and precision are decided; launch: their processes.
    max_length: tokens the model reads at once. max_gen_toks: new tokens where a request does not say.
    prefix_token_id: what stands before a text's first token; None: the tokenizer's end-of-text token.
    """

    config: EvalConfig
    model: ModelConfig
    checkpoint: Checkpoint
    launch: Launch
    max_length: int
    max_gen_toks: int
    prefix_token_id: int | None
    seed: int


def settle(
    arguments: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    *,
    detect: Callable[[Mapping[str, str]], Machine] = detect_machine,
) -> Settings:
    """What the arguments mean on this machine. Raises ConfigError with all that is wrong with them."""
    given, problems = typed_arguments(arguments)
    config = _configuration(given)
    machine = detect(environment)
    launch, found = place(config, machine, {}, Path.cwd(), "evaluating")
    problems += [*_in_a_step(environment), *check_evaluation(config), *found]
    checkpoint, model = None, None
    if config.checkpoint is None:
        problems.append(Problem("checkpoint", "is not set", "give it: checkpoint=RUN_DIR"))
    else:
        try:
            checkpoint, trained = read_checkpoint(config.checkpoint)
        except ConfigError as error:
            problems += error.problems
        else:
            model = trained.model
            problems += tp_problems(model, max(1, config.tp))
            problems += weight_problems(
                model, max(1, config.tp), launch.device, launch.local_processes, machine
            )
            problems += _model_problems(given, model)
    if problems:
        raise ConfigError([_renamed(problem) for problem in problems])
    assert checkpoint is not None, "without a checkpoint there was a problem"
    assert model is not None, "a checkpoint has a model"
    damaged = sentences("checkpoint", checkpoint, contents=True)
    if damaged:
        raise ConfigError(damaged)
    return Settings(
        replace(
            config,
            checkpoint=str(checkpoint.directory),
            dp=launch.dp,
            precision=replace(config.precision, name=launch.precision),
            launch=replace(config.launch, device=launch.device, threads=launch.threads),
        ),
        model,
        checkpoint,
        launch,
        max_length=given.get("max_length", model.seq_length),
        max_gen_toks=given.get("max_gen_toks", MAX_GEN_TOKS),
        prefix_token_id=given.get("prefix_token_id"),
        seed=given.get("seed", 0),
    )


def typed_arguments(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The arguments that are known and of their type, and what is wrong with the others."""
    given: dict[str, Any] = {}
    problems = []
    for name, value in arguments.items():
        argument, where = ARGUMENTS.get(name), f"{name}={value}"
        if argument is None:
            close = nearest(name, ARGUMENTS) or list(ARGUMENTS)
            problems.append(Problem(where, "is no argument of the model mlm", f"use {alternatives(close)}"))
        elif argument.kind is str:
            # A run called 7 or true reaches us as a number or a truth value.
            given[name] = str(value)
        elif type(value) is int:
            given[name] = value
        else:
            problems.append(Problem(where, "is not a whole number", f"use one, as in {name}=2"))
    for name in ("max_length", "max_gen_toks"):
        if given.get(name, 1) < 1:
            problems.append(Problem(f"{name}={given.pop(name)}", "is not at least 1", "leave it out"))
    return given, problems


def _configuration(given: Mapping[str, Any]) -> EvalConfig:
    config = compose(["launch=local"], [], EVAL)
    for name, value in given.items():
        section, _, field = (ARGUMENTS[name].key or name).rpartition(".")
        if section:
            config = replace(config, **{section: replace(getattr(config, section), **{field: value})})
        elif hasattr(config, field):
            config = replace(config, **{field: value})
    return replace(config, tasks=[], launch=replace(config.launch, failure_grace_s=FAILURE_GRACE_S))


def _in_a_step(environment: Mapping[str, str]) -> list[Problem]:
    step = find_step(environment)
    if step is None or step.world_size == 1:
        return []
    where = f"{step.world_size} processes from {step.starter}"
    remedy = "start one process and give tp and dp in --model_args"
    return [Problem(where, "cannot share this model, which starts its own", remedy)]


def _model_problems(given: Mapping[str, Any], model: ModelConfig) -> list[Problem]:
    problems = []
    if model.architecture not in WRITERS:
        wrong = f"is a {model.architecture}, which does not predict the next token"
        problems.append(
            Problem(f"checkpoint={given['checkpoint']}", wrong, f"name a run of {alternatives(WRITERS)}")
        )
    length, prefix = given.get("max_length", 1), given.get("prefix_token_id", 0)
    if length > model.seq_length:
        wrong = f"exceeds the model's context of {model.seq_length:,}"
        problems.append(Problem(f"max_length={length}", wrong, f"use {model.seq_length} or less"))
    if not 0 <= prefix < model.vocab_size:
        wrong = f"is not in the model's vocabulary of {model.vocab_size:,}"
        problems.append(Problem(f"prefix_token_id={prefix}", wrong, f"use 0 to {model.vocab_size - 1}"))
    return problems


def _renamed(problem: Problem) -> Problem:
    """The same in the words of --model_args, where nothing is in sections."""

    def plain(text: str) -> str:
        for name, argument in ARGUMENTS.items():
            text = text.replace(argument.key, name) if argument.key else text
        return text

    return Problem(plain(problem.where), plain(problem.wrong), plain(problem.remedy))

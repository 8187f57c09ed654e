"""What stands against generating before any process starts: checkpoint, prompts, output. No torch."""

from __future__ import annotations

import os
from pathlib import Path

from mlm.config.schema import GenerateConfig
from mlm.errors import ConfigError, MlmError, Problem
from mlm.eval.checks import checkpoint_problems, read_checkpoint
from mlm.eval.locate import read_tokenizer
from mlm.generate.prompts import Prompt, first_ids, length_problems, read_prompts

WRITERS = ("gpt2",)
"""Architectures that predict the next token."""


def problems(config: GenerateConfig) -> list[Problem]:
    """Everything that stands against it, from the checkpoint to the last prompt."""
    found = checkpoint_problems(config.checkpoint, config.tp)
    if config.out is not None:
        found += _out_problems(Path(config.out))
    prompts: list[Prompt] = []
    try:
        prompts = read_prompts(config)
    except ConfigError as error:
        found += error.problems
    if config.checkpoint is None:
        return found
    try:
        checkpoint, trained = read_checkpoint(config.checkpoint)
        if trained.model.architecture not in WRITERS:
            wrong = f"is a {trained.model.architecture}, which does not predict the next token"
            remedy = f"name a run of {' or '.join(WRITERS)}"
            return [*found, Problem(f"checkpoint={config.checkpoint}", wrong, remedy)]
        tokenizer = read_tokenizer(checkpoint)
    except ConfigError:
        return found  # said above
    except MlmError as error:
        wrong = f"has a tokenizer that cannot be read ({error})"
        remedy = "put back the files of the run"
        return [*found, Problem(f"checkpoint={config.checkpoint}", wrong, remedy)]
    return found + length_problems(prompts, tokenizer, trained.model.seq_length, config.slide)


def longest_text(config: GenerateConfig) -> tuple[int, int]:
    """How many texts are to be made, and the most tokens of one that the model sees at once.

    Typed prompts come one at a time, of any length. Raises ConfigError or DataError.
    """
    checkpoint, trained = read_checkpoint(config.checkpoint or "")
    context, prompts = trained.model.seq_length, read_prompts(config)
    if not prompts:
        return 1, context
    tokenizer = read_tokenizer(checkpoint)
    longest = max(len(first_ids(tokenizer, prompt.text)) for prompt in prompts)
    return len(prompts) * config.samples, min(context, longest + config.max_new_tokens)


def _out_problems(out: Path) -> list[Problem]:
    where = f"out={out}"
    if out.is_dir():
        return [Problem(where, "is a directory", f"name a file: out={out / 'texts.jsonl'}")]
    if out.exists():
        other = out.with_name(f"{out.stem}-2{out.suffix}")
        return [Problem(where, "is there already and is never overwritten", f"use out={other}")]
    if not out.parent.is_dir():
        return [Problem(where, f"cannot be written: there is no directory {out.parent}", "make it first")]
    if not os.access(out.parent, os.W_OK | os.X_OK):
        return [Problem(where, f"cannot be written: no permission in {out.parent}", "name another directory")]
    return []

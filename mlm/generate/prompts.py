"""Where prompts come from: one that is typed, or a file of them. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlm.config.schema import GenerateConfig
from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.errors import ConfigError, Problem

KEYS = ("prompt", "text")
"""What may hold the prompt in a line of a .jsonl file; the first that is there does."""
_SHOWN = 10
"""Lines of a file that are named; of more there is a count."""


@dataclass(frozen=True)
class Prompt:
    """A prompt. where: what a message about it calls it."""

    text: str
    where: str


def read_prompts(config: GenerateConfig) -> list[Prompt]:
    """The prompts of a configuration, none of an interactive one. Raises ConfigError naming lines."""
    if config.prompt is not None:
        return [Prompt(config.prompt, "prompt")]
    return [] if config.prompts is None else list(_read_file(config.prompts))


def first_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids to go on from; of an empty text the end of a document, after which a new one begins.

    Raises BadData when the text cannot be encoded, or is empty and there is no such token.
    """
    ids: list[int] = tokenizer.encode(text).tolist()
    if ids:
        return ids
    if tokenizer.eod is None:
        remedy = "give at least one character"
        raise BadData("an empty prompt", f"is nothing to begin with for {tokenizer.name}", remedy)
    return [tokenizer.eod]


def length_problems(prompts: list[Prompt], tokenizer: Tokenizer, context: int, slide: bool) -> list[Problem]:
    """Why prompts cannot be gone on from, the first few of a file's. context: tokens the model sees."""
    found = []
    for prompt in prompts:
        try:
            tokens = len(first_ids(tokenizer, prompt.text))
        except BadData as error:
            wrong = f"has {error.problem.where}, which {error.problem.wrong}"
            found.append(Problem(prompt.where, wrong, error.problem.remedy))
            continue
        if tokens > context and not slide:
            wrong = f"has {tokens:,} tokens, and the model sees {context:,}"
            found.append(Problem(prompt.where, wrong, "shorten it, or use slide=true to have its end seen"))
    return _few(found)


@cache
def _read_file(path: str) -> tuple[Prompt, ...]:
    # Once: it may be a pipe.
    where = f"prompts={path}"
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        remedy = "name a file with one prompt a line"
        raise ConfigError(Problem(where, f"cannot be read ({error.strerror})", remedy)) from None
    is_json = path.endswith((".jsonl", ".json"))
    prompts, found = [], []
    for number, line in enumerate(content.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            text = line.decode()
            prompts.append(Prompt(_from_json(text) if is_json else text, place))
        except UnicodeDecodeError as error:
            wrong = f"is no UTF-8 at byte {error.start + 1}"
            found.append(Problem(place, wrong, "write the file in UTF-8"))
        except ValueError as error:
            found.append(Problem(place, str(error), f'write {{"{KEYS[0]}": "..."}}'))
    if found:
        raise ConfigError(_few(found))
    if not prompts:
        raise ConfigError(Problem(where, "holds no prompt", "write one a line"))
    return tuple(prompts)


def _from_json(line: str) -> str:
    try:
        record = json.loads(line)
    except ValueError:
        raise ValueError("is not JSON") from None
    key = next((key for key in KEYS if isinstance(record, dict) and key in record), None)
    if key is None:
        raise ValueError(f"has no key {' or '.join(KEYS)}")
    if not isinstance(record[key], str):
        raise ValueError(f"has a {key} that is no text")
    text: str = record[key]
    return text


def _few(problems: list[Problem]) -> list[Problem]:
    return list(_first(problems))


def _first(problems: list[Problem]) -> Iterator[Problem]:
    yield from problems[:_SHOWN]
    more = len(problems) - _SHOWN
    if more > 0:
        yield Problem(f"{more:,} more lines", "have such problems", "correct them likewise")

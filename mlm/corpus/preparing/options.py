"""What mlm-data prepare is asked for, and everything that can be wrong with it before a byte is read."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlm.corpus.preparing import engines
from mlm.corpus.preparing.encode import Recipe
from mlm.corpus.preparing.partial import last_state, partial_folder
from mlm.corpus.reading.blocks import MAX_DOCUMENT_BYTES, Cutting
from mlm.corpus.reading.inputs import STDIN, Found, find_sources
from mlm.data.bad_data import BadData
from mlm.data.indexed import bin_path, idx_path
from mlm.data.sentences import MAX_SENTENCE_CHARACTERS
from mlm.data.tokenizers import Tokenizer, parse_tokenizer
from mlm.errors import ConfigError, Problem

# Raise it when the same input is to give other bytes: nobody may go on with what another version began.
FORMAT = 1


@dataclass(frozen=True)
class Options:
    """What to prepare, and how. tokenizer: as parse_tokenizer takes it; eod None: with documents, not with
    sentences; workers None: one a core; engine: a library of mlm.corpus.preparing.engines, None the fastest.
    """

    inputs: tuple[str, ...]
    prefix: Path
    tokenizer: str = "gpt2"
    keys: tuple[str, ...] = ("text",)
    eod: bool | None = None
    split_sentences: bool = False
    max_sentence_characters: int = MAX_SENTENCE_CHARACTERS
    text_unit: str = "file"
    stdin_format: str = "jsonl"
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    skip_errors: bool = False
    workers: int | None = None
    overwrite: bool = False
    engine: str | None = None

    @property
    def level(self) -> str:
        return "sentence" if self.split_sentences else "document"

    def name(self, key: str) -> str:
        """Of the dataset of a key: PREFIX_text_document."""
        return f"{self.prefix.name}_{key}_{self.level}"

    def dataset(self, key: str) -> Path:
        return self.prefix.with_name(self.name(key))


def checked(options: Options) -> tuple[Found, Tokenizer, Recipe]:
    """Everything that can be wrong before a byte is read, at once."""
    problems: list[Problem] = []
    found, tokenizer = Found(), None
    try:
        found = find_sources(options.inputs, options.stdin_format)
    except ConfigError as error:
        problems += error.problems
    try:
        tokenizer = parse_tokenizer(options.tokenizer)
    except BadData as error:
        problems.append(error.problem)
    problems += _option_problems(options)
    texts = [source for source in found.sources if source.format == "txt"]
    if texts and options.keys != ("text",):
        wrong = f"has no keys, but --json-keys names {', '.join(options.keys)}"
        problems.append(Problem(texts[0].name, wrong, "prepare .txt files without --json-keys"))
    eod = None
    if tokenizer is not None and (options.eod or (options.eod is None and not options.split_sentences)):
        eod = tokenizer.eod
        if eod is None:
            wrong = "has no id that ends a document"
            problems.append(Problem(f"--tokenizer={options.tokenizer}", wrong, "add --no-eod"))
    if problems or tokenizer is None:
        raise ConfigError(problems)
    cutting = Cutting(options.keys, options.text_unit, options.max_document_bytes)
    engine = engines.choose(tokenizer, options.engine)
    longest = options.max_sentence_characters if options.split_sentences else 0
    recipe = Recipe(tuple(found.sources), cutting, tokenizer.describe(), engine, eod, longest)
    return found, tokenizer, recipe


def _option_problems(options: Options) -> list[Problem]:
    problems = []
    for name, value in (
        ("--workers", options.workers),
        ("--max-document-bytes", options.max_document_bytes),
        ("--max-sentence-characters", options.max_sentence_characters),
    ):
        if value is not None and value < 1:
            problems.append(Problem(f"{name}={value}", "is not positive", "give 1 or more"))
    if len(set(options.keys)) < len(options.keys) or not all(options.keys):
        wrong = "names a key twice, or an empty one"
        problems.append(Problem(f"--json-keys={','.join(options.keys)}", wrong, "name each key once"))
    if any("/" in key for key in options.keys):
        wrong = "names a key with a /, which no file name can have"
        problems.append(Problem(f"--json-keys={','.join(options.keys)}", wrong, "rename that key"))
    if not options.prefix.name:
        problems.append(Problem(f"--out={options.prefix}", "is no prefix of file names", "add a name to it"))
    return problems


def refuse_existing(options: Options, plan: dict[str, Any]) -> None:
    state = last_state(partial_folder(options.prefix), plan)
    if options.overwrite or (state is not None and state.complete):
        return
    existing = [
        str(path)
        for key in options.keys
        for path in (idx_path(options.dataset(key)), bin_path(options.dataset(key)))
        if path.exists()
    ]
    if existing:
        remedy = "choose another --out, or replace it with --overwrite"
        raise ConfigError([Problem(path, "is there already", remedy) for path in existing])


def make_plan(recipe: Recipe) -> dict[str, Any]:
    """All that decides the bytes, as the journal's folder keeps it."""
    plan: dict[str, Any] = {
        "format": FORMAT,
        "sources": [
            [os.path.abspath(source.path), source.format, source.compression, source.size, source.modified_ns]
            for source in recipe.sources
        ],
        "cutting": asdict(recipe.cutting),
        "tokenizer": recipe.tokenizer["fingerprint"],
        "eod": recipe.eod,
        "longest_sentence": recipe.longest_sentence,
    }
    if any(source.path == STDIN for source in recipe.sources):
        plan["stdin"] = secrets.token_hex(8)  # what came through it before is gone
    loaded: dict[str, Any] = json.loads(json.dumps(plan))
    return loaded

"""What can be said against a data configuration at once: files and numbers, no text encoded, none trained."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data.bad_data import BadData
from mlm.data.cache import cache_root
from mlm.data.dataset_checks import dataset_problems
from mlm.data.masked_lm.checks import MASKED_LM, NEXT_TOKEN, masked_lm_problems
from mlm.data.sources import holding_ids, is_text_run
from mlm.data.split import split_problem
from mlm.data.text import read_text, text_path
from mlm.data.tokenizers import FILE_OF_KIND, KINDS, SHIPPED
from mlm.data.tokenizers.configured import vocab_size_of
from mlm.errors import Problem

# A text up to here is read for its alphabet in milliseconds; the alphabet of a longer one is seen later.
QUICK_TEXT_BYTES = 4 << 20


def problems(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    model_vocab_size: int,
    seq_length: int,
    objective: str = NEXT_TOKEN,
) -> list[Problem]:
    """Every problem visible without encoding anything; in milliseconds, except that files must answer."""
    return [
        *_tokenizer_problems(data, tokenizer, model_vocab_size),
        *_data_problems(data, tokenizer, seq_length, objective),
        *(masked_lm_problems(data, tokenizer, seq_length) if objective == MASKED_LM else ()),
        *_cache_problems(data),
    ]


def vocabulary_problem(tokenizer: str, vocab_size: int, model_vocab_size: int) -> Problem | None:
    """tokenizer: what to call it. Its ids have to be rows of the model's vocabulary."""
    if vocab_size <= model_vocab_size:
        return None
    return Problem(
        f"model.vocab_size={model_vocab_size}",
        f"is less than the {vocab_size:,} tokens of {tokenizer}",
        f"use model.vocab_size={vocab_size}, or a tokenizer with at most {model_vocab_size:,} tokens",
    )


def _tokenizer_problems(
    data: DataConfig, tokenizer: TokenizerConfig, model_vocab_size: int
) -> Iterator[Problem]:
    kind = tokenizer.kind
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, n=1, cutoff=0.4)
        yield Problem(
            f"tokenizer.kind={kind}",
            f"is none of {', '.join(KINDS)}",
            f"did you mean {near[0]}?" if near else f"use {KINDS[0]}",
        )
        return
    if kind == "sentencepiece":
        yield from _sentencepiece_problems(data, tokenizer, model_vocab_size)
        return
    if tokenizer.vocab_size is not None:
        yield Problem(
            f"tokenizer.vocab_size={tokenizer.vocab_size}",
            f"means nothing to a {kind} tokenizer",
            "leave it out, or use tokenizer=sentencepiece",
        )
    if kind in FILE_OF_KIND:
        yield from _file_problems(tokenizer, model_vocab_size)
        return
    if tokenizer.path is not None:
        with_files = ", ".join(FILE_OF_KIND)
        yield Problem(
            f"tokenizer.path={tokenizer.path}",
            f"means nothing to a {kind} tokenizer",
            f"leave it out, or name its kind with tokenizer.kind ({with_files})",
        )
    found: Problem | None = None
    if kind == "byte":
        found = vocabulary_problem("the byte tokenizer", vocab_size_of(tokenizer) or 0, model_vocab_size)
    elif ids := holding_ids(data):
        found = Problem(
            "tokenizer.kind=char",
            f"takes its alphabet from a text, and {ids} holds ids",
            "name the tokenizer that made them: gpt2, byte, or another with its file as tokenizer.path",
        )
    elif is_text_run(data) and _is_quick(text_path(data.path)):
        found = _alphabet_problem(text_path(data.path), model_vocab_size)
    if found:
        yield found


def _file_problems(tokenizer: TokenizerConfig, model_vocab_size: int) -> Iterator[Problem]:
    """Of a kind whose file says how many tokens there are."""
    kind = tokenizer.kind
    if tokenizer.path is None and kind not in SHIPPED:
        yield Problem(
            "tokenizer.path=null", f"and a {kind} tokenizer is in a file", f"give {FILE_OF_KIND[kind]}"
        )
        return
    try:
        size = vocab_size_of(tokenizer)
    except BadData as error:
        yield replace(error.problem, where=f"tokenizer.path={tokenizer.path}")
        return
    if size is not None and (found := vocabulary_problem(f"the {kind} tokenizer", size, model_vocab_size)):
        yield found


def _sentencepiece_problems(
    data: DataConfig, tokenizer: TokenizerConfig, model_vocab_size: int
) -> Iterator[Problem]:
    if tokenizer.path is None:
        if ids := holding_ids(data):
            yield Problem(
                "tokenizer.path=null",
                f"asks to train a tokenizer on text, and {ids} holds ids",
                "give the .model file that made them as tokenizer.path",
            )
        if tokenizer.vocab_size is not None:
            if tokenizer.vocab_size < 1:
                yield Problem(
                    f"tokenizer.vocab_size={tokenizer.vocab_size}", "is not positive", "leave it out"
                )
            elif found := vocabulary_problem(
                "the tokenizer to be trained", tokenizer.vocab_size, model_vocab_size
            ):
                yield found
        return
    if not Path(tokenizer.path).expanduser().is_file():
        yield Problem(f"tokenizer.path={tokenizer.path}", "is no file", "give a SentencePiece .model file")
    if tokenizer.vocab_size is not None:
        yield Problem(
            f"tokenizer.vocab_size={tokenizer.vocab_size}",
            "is for training a tokenizer, and tokenizer.path names a finished one",
            "leave one of the two out",
        )


def _alphabet_problem(path: Path, model_vocab_size: int) -> Problem | None:
    try:
        characters = len(set(read_text(path)))
    except BadData:
        return None  # reported for data.path
    return vocabulary_problem("the text's alphabet", characters, model_vocab_size)


def _data_problems(
    data: DataConfig, tokenizer: TokenizerConfig, seq_length: int, objective: str
) -> Iterator[Problem]:
    wrong_split = split_problem(data.split)
    if wrong_split:
        yield wrong_split
    if not is_text_run(data):
        # Whether a split has samples of masked_lm is seen when they are made.
        split_is_sound = wrong_split is None and objective != MASKED_LM
        yield from dataset_problems(data, tokenizer, seq_length, split_is_sound=split_is_sound)
        return
    for name in ("reset_positions", "reset_attention"):
        if getattr(data, name):
            wrong = "is for documents that are packed together, and a text is one document"
            yield Problem(f"data.{name}=true", wrong, "leave it out, or train on a .bin/.idx dataset")
    path = text_path(data.path)
    try:
        if _is_quick(path):
            read_text(path)
        elif not path.is_file():
            yield Problem(f"data.path={data.path}", "is no file", "check the path")
    except BadData as error:
        yield error.problem


def _cache_problems(data: DataConfig) -> Iterator[Problem]:
    root = cache_root(data.cache_dir)
    existing = root
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    # A cache that exists may be read-only and still hold all that is needed.
    usable = existing.is_dir() and (existing == root or os.access(existing, os.W_OK))
    if not usable:
        yield Problem(
            f"the cache {root}",
            f"cannot be made in {existing}",
            "set data.cache_dir or MLM_CACHE to a folder you can write",
        )


def _is_quick(path: Path) -> bool:
    return not path.is_file() or path.stat().st_size <= QUICK_TEXT_BYTES

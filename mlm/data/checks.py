"""What can be said against a data configuration at once: files and numbers, no text encoded, none trained."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data.bad_data import BadData
from mlm.data.cache import cache_root
from mlm.data.indexed import IndexedDataset, bin_path, idx_path
from mlm.data.split import parts_problem, split_dataset, split_problem
from mlm.data.text import is_text, read_text, text_path
from mlm.data.tokenizers import BYTE_VOCAB_SIZE, GPT2_VOCAB_SIZE, KINDS
from mlm.errors import Problem

# A text up to here is read for its alphabet in milliseconds; the alphabet of a longer one is seen later.
QUICK_TEXT_BYTES = 4 << 20


def problems(
    data: DataConfig, tokenizer: TokenizerConfig, model_vocab_size: int, seq_length: int
) -> list[Problem]:
    """Every problem visible without encoding anything; in milliseconds, except that files must answer."""
    return [
        *_tokenizer_problems(data, tokenizer, model_vocab_size),
        *_data_problems(data, seq_length),
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
    for name, value in (("path", tokenizer.path), ("vocab_size", tokenizer.vocab_size)):
        if value is not None:
            yield Problem(
                f"tokenizer.{name}={value}",
                f"means nothing to a {kind} tokenizer",
                "leave it out, or use tokenizer=sentencepiece",
            )
    found: Problem | None = None
    if kind == "gpt2":
        found = vocabulary_problem("the gpt2 tokenizer", GPT2_VOCAB_SIZE, model_vocab_size)
    elif kind == "byte":
        found = vocabulary_problem("the byte tokenizer", BYTE_VOCAB_SIZE, model_vocab_size)
    elif _holds_ids(data.path):
        found = Problem(
            "tokenizer.kind=char",
            f"takes its alphabet from a text, and data.path={data.path} holds ids",
            "name the tokenizer that made them: gpt2, byte, or sentencepiece with tokenizer.path",
        )
    elif is_text(data.path) and _is_quick(text_path(data.path)):
        found = _alphabet_problem(text_path(data.path), model_vocab_size)
    if found:
        yield found


def _sentencepiece_problems(
    data: DataConfig, tokenizer: TokenizerConfig, model_vocab_size: int
) -> Iterator[Problem]:
    if tokenizer.path is None:
        if _holds_ids(data.path):
            yield Problem(
                "tokenizer.path=null",
                f"asks to train a tokenizer on text, and data.path={data.path} holds ids",
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


def _data_problems(data: DataConfig, seq_length: int) -> Iterator[Problem]:
    wrong_split = split_problem(data.split)
    if wrong_split:
        yield wrong_split
    if is_text(data.path):
        path = text_path(data.path)
        try:
            if _is_quick(path):
                read_text(path)
            elif not path.is_file():
                yield Problem(f"data.path={data.path}", "is no file", "check the path")
        except BadData as error:
            yield error.problem
        return
    assert data.path is not None, "no path is the embedded text"
    prefix = Path(data.path).expanduser().absolute()
    missing = [file.name for file in (bin_path(prefix), idx_path(prefix)) if not file.is_file()]
    if missing:
        yield Problem(f"data.path={data.path}", f"no such dataset ({', '.join(missing)})", _nearby(prefix))
        return
    try:
        dataset = IndexedDataset(prefix)
    except BadData as error:
        yield error.problem
        return
    if not wrong_split:
        short = parts_problem(split_dataset(dataset, data.split), data.split, seq_length, dataset)
        if short:
            yield short


def _holds_ids(path: str | None) -> bool:
    """Whether data.path is a token dataset that exists; of a missing one nothing more can be said."""
    return path is not None and not is_text(path) and idx_path(Path(path).expanduser()).is_file()


def _nearby(prefix: Path) -> str:
    """What could have been meant: a suffix too many, a .txt too few, or another dataset beside it."""
    if prefix.suffix in (".bin", ".idx") and idx_path(prefix.with_suffix("")).is_file():
        return f"leave the {prefix.suffix} out: data.path={prefix.with_suffix('')}"
    if prefix.is_file():
        return "a text has to be called .txt; a dataset is named by its PREFIX without .bin or .idx"
    if prefix.parent.is_dir():
        others = [path.name[: -len(".idx")] for path in sorted(prefix.parent.glob("*.idx"))]
        if near := get_close_matches(prefix.name, others, n=1):
            return f"did you mean {prefix.parent / near[0]}?"
    return "give the PREFIX of PREFIX.bin and PREFIX.idx, or a .txt file"


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

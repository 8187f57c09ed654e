"""From a data configuration to token ids on disk; done once by the launcher, before there are workers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data.cache import cache_key, cache_root, cached, sha256_file
from mlm.data.checks import problems, vocabulary_problem
from mlm.data.entropy import text_entropies
from mlm.data.indexed import IndexedDataset, IndexedWriter, bin_path, idx_path
from mlm.data.prepared import PreparedData
from mlm.data.scan import scan
from mlm.data.sentencepiece_training import OPTIONS, train
from mlm.data.split import NAMES, Part, cut, parts_problem, split_dataset
from mlm.data.text import EMBEDDED_NAME, is_text, read_text, text_path
from mlm.data.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    Gpt2Tokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    gpt2_fingerprint,
)
from mlm.errors import ConfigError, DataError, Problem

__all__ = ["PreparedData", "prepare_data", "problems"]

# Part of every cache key: raise it when the same input is to give another entry.
FORMAT = 1
# How much of a text shows whether a given SentencePiece model gives it back.
ROUND_TRIP_CHARACTERS = 200_000

Say = Callable[[str], None]


def prepare_data(
    data: DataConfig, tokenizer: TokenizerConfig, model_vocab_size: int, seq_length: int, say: Say
) -> PreparedData:
    """Token ids for a run, from the cache when the same text was encoded the same way before.

    A text is cut by characters and each split is encoded by itself, as one document; a .bin/.idx pair is
    read where it lies, after its ids have been checked once. say: called with lines about slow work.
    Raises ConfigError (with every problem of `problems`) or DataError.
    """
    found = problems(data, tokenizer, model_vocab_size, seq_length)
    if found:
        raise ConfigError(found)
    if is_text(data.path):
        return _prepare_text(data, tokenizer, model_vocab_size, seq_length, say)
    return _prepare_indexed(data, tokenizer, model_vocab_size, seq_length, say)


def _prepare_text(
    data: DataConfig, config: TokenizerConfig, model_vocab_size: int, seq_length: int, say: Say
) -> PreparedData:
    path = text_path(data.path)
    pieces = config.vocab_size or model_vocab_size
    recipe = _recipe(config, pieces)

    def build(folder: Path) -> dict[str, Any]:
        text = read_text(path)
        ends = [0, *cut(len(text), data.split)]
        texts = {name: text[ends[i] : ends[i + 1]] for i, name in enumerate(NAMES)}
        if config.kind == "sentencepiece" and config.path is None:
            say(
                f"training a SentencePiece tokenizer of {pieces:,} pieces on {len(texts['train']):,} "
                "characters (once; it is cached)"
            )
            train(texts["train"], pieces, folder / "tokenizer.model")
        tokenizer = _tokenizer(config, text, folder)
        _check_vocabulary(tokenizer.name, tokenizer.vocab_size, model_vocab_size)
        say(f"encoding {len(text):,} characters (once; they are cached)")
        return {**_encode(texts, tokenizer, folder, say), "entropies": text_entropies(text)}

    key = cache_key(
        format=FORMAT, text=sha256_file(path), split=[float(s) for s in data.split], tokenizer=recipe
    )
    folder, info = cached(cache_root(data.cache_dir), key, build)

    description = info["tokenizer"]
    if config.kind == "sentencepiece":
        # Not part of the entry: whatever was encoded with an equal file, wherever it lies, shares it.
        description = {**description, "path": str(_model_path(config, folder))}
    _check_vocabulary(f"the {config.kind} tokenizer", description["vocab_size"], model_vocab_size)
    ranges, documents = info["ranges"], info["documents"]
    parts = [Part(name, ranges[name][0], ranges[name][1], documents[name]) for name in NAMES]
    _check_parts(parts, data.split, seq_length)
    what = f"the embedded text {EMBEDDED_NAME}" if data.path is None else str(path)
    prefix, checksum = folder / "text", info["tokens_sha256"]
    return replace(
        _prepared(what, prefix, description, parts, checksum, model_vocab_size, seq_length),
        embedded=data.path is None,
        characters=info["characters"],
        valid_characters_scored=info["valid_characters_scored"],
        entropies=info["entropies"],
    )


def _encode(texts: dict[str, str], tokenizer: Tokenizer, folder: Path, say: Say) -> dict[str, Any]:
    """Write the splits to folder/text.bin and .idx; what the cache keeps about them."""
    ranges, scored, stop = {}, 0, 0
    with IndexedWriter(folder / "text", tokenizer.vocab_size) as writer:
        for name, text in texts.items():
            start, ids = stop, tokenizer.encode(text)
            if len(ids):
                writer.add_document(ids)
            stop += len(ids)
            ranges[name] = (start, stop)
            if name == "valid" and len(ids):
                first = tokenizer.decode(ids[:1])
                # A first token that is part of a character stands for none: the next ones complete it.
                scored = len(text) - (len(first) if text.startswith(first) else 0)
    beginning = texts["train"][:ROUND_TRIP_CHARACTERS]
    if tokenizer.decode(tokenizer.encode(beginning)) != beginning:
        say(
            f"this tokenizer ({tokenizer.name}) does not give the text back exactly: "
            "it changes spaces, line ends or characters, which no loss counts"
        )
    return {
        "tokenizer": {name: value for name, value in tokenizer.describe().items() if name != "path"},
        "ranges": ranges,
        "documents": {name: int(stop > start) for name, (start, stop) in ranges.items()},
        "characters": {name: len(text) for name, text in texts.items()},
        "valid_characters_scored": scored,
        "tokens_sha256": sha256_file(bin_path(folder / "text")),
    }


def _prepare_indexed(
    data: DataConfig, config: TokenizerConfig, model_vocab_size: int, seq_length: int, say: Say
) -> PreparedData:
    assert data.path is not None, "no path is the embedded text"
    prefix = Path(data.path).expanduser().absolute()
    dataset = IndexedDataset(prefix)
    tokenizer = _tokenizer(config, "", Path())
    _check_vocabulary(tokenizer.name, tokenizer.vocab_size, model_vocab_size)
    parts = split_dataset(dataset, data.split)
    _check_parts(parts, data.split, seq_length, dataset)

    files = [(str(file), file.stat()) for file in (bin_path(prefix), idx_path(prefix))]
    key = cache_key(format=FORMAT, files=[(name, stat.st_size, stat.st_mtime_ns) for name, stat in files])
    _, seen = cached(cache_root(data.cache_dir), key, lambda _: scan(dataset, say))
    if seen["least"] < 0 or seen["greatest"] >= model_vocab_size:
        which = "least" if seen["least"] < 0 else "greatest"
        raise ConfigError(
            Problem(
                f"data.path={data.path}",
                f"holds token id {seen[which]:,} (at position {seen[which + '_at']:,}), "
                f"outside model.vocab_size={model_vocab_size}",
                f"use model.vocab_size={seen['greatest'] + 1} or more"
                if which == "greatest"
                else "prepare the data again",
            )
        )
    return _prepared(
        str(prefix), prefix, tokenizer.describe(), parts, seen["sha256"], model_vocab_size, seq_length
    )


def _prepared(
    source: str,
    prefix: Path,
    tokenizer: dict[str, Any],
    parts: Sequence[Part],
    tokens_sha256: str,
    model_vocab_size: int,
    seq_length: int,
) -> PreparedData:
    ranges = {part.name: (part.start, part.stop) for part in parts}
    return PreparedData(
        source=source,
        embedded=False,
        prefix=str(prefix),
        tokenizer=tokenizer,
        seq_length=seq_length,
        ranges=ranges,
        documents={part.name: part.documents for part in parts},
        fingerprint=hashlib.sha256(json.dumps([tokens_sha256, ranges]).encode()).hexdigest(),
        ln_vocab=math.log(model_vocab_size),
    )


def _recipe(config: TokenizerConfig, pieces: int) -> dict[str, Any]:
    """What decides the ids of a text, without loading the tokenizer; part of the cache's key."""
    match config.kind:
        case "gpt2":
            return {"kind": "gpt2", "files": gpt2_fingerprint(), "library": version("tokenizers")}
        case "sentencepiece" if config.path is None:
            library = version("sentencepiece")
            return {"kind": "sentencepiece", "pieces": pieces, "options": OPTIONS, "library": library}
        case "sentencepiece":
            model = sha256_file(_model_path(config, Path()))
            return {"kind": "sentencepiece", "model": model, "library": version("sentencepiece")}
        case kind:
            return {"kind": kind}


def _tokenizer(config: TokenizerConfig, text: str, folder: Path) -> Tokenizer:
    match config.kind:
        case "gpt2":
            return Gpt2Tokenizer()
        case "sentencepiece":
            return SentencePieceTokenizer(_model_path(config, folder))
        case "char":
            return CharTokenizer.of_text(text)
        case "byte":
            return ByteTokenizer()
    raise AssertionError(f"tokenizer kind {config.kind} passed the checks")


def _model_path(config: TokenizerConfig, folder: Path) -> Path:
    if config.path is None:
        return folder / "tokenizer.model"
    return Path(config.path).expanduser().absolute()


def _check_vocabulary(name: str, vocab_size: int, model_vocab_size: int) -> None:
    found = vocabulary_problem(name, vocab_size, model_vocab_size)
    if found:
        raise ConfigError(found)


def _check_parts(
    parts: Sequence[Part], split: Sequence[float], seq_length: int, dataset: IndexedDataset | None = None
) -> None:
    found = parts_problem(parts, split, seq_length, dataset)
    if found:
        raise DataError(str(found))

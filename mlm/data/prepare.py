"""From a data configuration to token ids on disk; done once by the launcher, before there are workers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data.blend import Blend
from mlm.data.cache import cache_key, cache_root, cached, sha256_file
from mlm.data.checks import problems, vocabulary_problem
from mlm.data.entropy import text_entropies
from mlm.data.indexed import IndexedDataset, IndexedWriter, bin_path
from mlm.data.masked_lm.checks import MASKED_LM, NEXT_TOKEN, ends_problems
from mlm.data.masked_lm.prepare import sentences_of, with_chunks
from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.data.scan import id_problems, scanned
from mlm.data.sentencepiece_training import train
from mlm.data.sources import distinct_names, is_text_run, named_datasets
from mlm.data.split import NAMES, Part, cut, parts_problem, split_dataset
from mlm.data.text import EMBEDDED_NAME, read_text, text_path
from mlm.data.tokenizers import Tokenizer
from mlm.data.tokenizers.configured import TRAINED_MODEL, build, model_path, recipe
from mlm.errors import ConfigError, DataError

__all__ = ["PreparedData", "prepare_data", "problems"]

# Part of every cache key: raise it when the same input is to give another entry.
FORMAT = 1
# How much of a text shows whether a given SentencePiece model gives it back.
ROUND_TRIP_CHARACTERS = 200_000

Say = Callable[[str], None]


def prepare_data(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    model_vocab_size: int,
    seq_length: int,
    say: Say,
    objective: str = NEXT_TOKEN,
) -> PreparedData:
    """Token ids for a run, from the cache when the same text was encoded the same way before.

    A text is cut by characters and each split is encoded by itself, as one document; .bin/.idx pairs are
    read where they lie, after their ids have been checked once. For objective=masked_lm a text's sequences
    are its sentences, and which of them make a sample is found and cached. say: called with lines about slow
    work. Raises ConfigError (with every problem of `problems`) or DataError.
    """
    found = problems(data, tokenizer, model_vocab_size, seq_length, objective)
    if found:
        raise ConfigError(found)
    prepare = _prepare_text if is_text_run(data) else _prepare_datasets
    prepared = prepare(data, tokenizer, model_vocab_size, seq_length, say, objective)
    return with_chunks(prepared, data, say) if objective == MASKED_LM else prepared


def _prepare_text(
    data: DataConfig,
    config: TokenizerConfig,
    model_vocab_size: int,
    seq_length: int,
    say: Say,
    objective: str,
) -> PreparedData:
    path = text_path(data.path)
    pieces = config.vocab_size or model_vocab_size

    def fill(folder: Path) -> dict[str, Any]:
        text = read_text(path)
        ends = [0, *cut(len(text), data.split)]
        texts = {name: text[ends[i] : ends[i + 1]] for i, name in enumerate(NAMES)}
        if config.kind == "sentencepiece" and config.path is None:
            say(
                f"training a SentencePiece tokenizer of {pieces:,} pieces on {len(texts['train']):,} "
                "characters (once; it is cached)"
            )
            train(texts["train"], pieces, folder / TRAINED_MODEL)
        tokenizer = build(config, text, folder)
        _check_vocabulary(tokenizer.name, tokenizer.vocab_size, model_vocab_size)
        say(f"encoding {len(text):,} characters (once; they are cached)")
        encoded = _encode(texts, tokenizer, folder, say, sentences=objective == MASKED_LM)
        return {**encoded, "entropies": text_entropies(text)}

    key = cache_key(
        format=FORMAT,
        text=sha256_file(path),
        split=[float(s) for s in data.split],
        tokenizer=recipe(config, pieces),
        **({"sequences": "sentences"} if objective == MASKED_LM else {}),
    )
    folder, info = cached(cache_root(data.cache_dir), key, fill)

    description = info["tokenizer"]
    if config.kind == "sentencepiece" or config.path is not None:
        # Not part of the entry: whatever was encoded with an equal file, wherever it lies, shares it.
        description = {**description, "path": str(model_path(config) or folder / TRAINED_MODEL)}
    _check_vocabulary(f"the {config.kind} tokenizer", description["vocab_size"], model_vocab_size)
    ranges, documents = info["ranges"], info["documents"]
    parts = [Part(name, ranges[name][0], ranges[name][1], documents[name]) for name in NAMES]
    # Samples of masked_lm are counted later: a text of few tokens can have enough of them.
    if objective != MASKED_LM and (found := parts_problem(parts, data.split, seq_length)):
        raise DataError(str(found))
    what = f"the embedded text {EMBEDDED_NAME}" if data.path is None else str(path)
    dataset = PreparedDataset.of_parts("text", str(folder / "text"), parts)
    return replace(
        _prepared(what, [dataset], description, [info["tokens_sha256"]], model_vocab_size, seq_length),
        embedded=data.path is None,
        characters=info["characters"],
        valid_characters_scored=info["valid_characters_scored"],
        entropies=info["entropies"],
    )


def _encode(
    texts: dict[str, str], tokenizer: Tokenizer, folder: Path, say: Say, *, sentences: bool
) -> dict[str, Any]:
    """Write the splits to folder/text.bin and .idx; what the cache keeps about them.

    sentences: a sequence for each, and a document for each split; else both are the split.
    """
    ranges, scored, stop = {}, 0, 0
    with IndexedWriter(folder / "text", tokenizer.vocab_size) as writer:
        for name, text in texts.items():
            texts_of_sequences = sentences_of(text) if sentences else [text]
            encoded = [ids for ids in tokenizer.encode_batch(texts_of_sequences) if len(ids)]
            if encoded:
                writer.add_sentences(encoded)
            start, stop = stop, stop + sum(map(len, encoded))
            ranges[name] = (start, stop)
            if name == "valid" and encoded and not sentences:
                first = tokenizer.decode(encoded[0][:1])
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


def _prepare_datasets(
    data: DataConfig,
    config: TokenizerConfig,
    model_vocab_size: int,
    seq_length: int,
    say: Say,
    objective: str,
) -> PreparedData:
    tokenizer = build(config, "", Path())
    _check_vocabulary(tokenizer.name, tokenizer.vocab_size, model_vocab_size)
    datasets, checksums, wrong = [], [], []
    named_ones = named_datasets(data)
    shares = Blend([named.weight for named in named_ones]).weights
    for named, name, weight in zip(named_ones, distinct_names(named_ones), shares, strict=True):
        dataset = IndexedDataset(named.prefix)
        parts = split_dataset(dataset, data.split, by_sentence=objective == MASKED_LM)
        if weight == 0:
            # Not trained on, so not read either; it keeps its place in the list.
            parts = [replace(part, start=0, stop=0, documents=0) for part in parts]
        else:
            seen = scanned(dataset, data.cache_dir, say)
            checksums.append(seen["sha256"])
            wrong += id_problems(named.where, seen, model_vocab_size)
            if objective == MASKED_LM:
                wrong += ends_problems(named.where, dataset, tokenizer)
        datasets.append(PreparedDataset.of_parts(name, str(named.prefix), parts, weight))
    if wrong:
        raise ConfigError(wrong)
    source = datasets[0].prefix if data.blend is None else f"a blend of {len(datasets)} datasets"
    return _prepared(source, datasets, tokenizer.describe(), checksums, model_vocab_size, seq_length)


def _prepared(
    source: str,
    datasets: Sequence[PreparedDataset],
    tokenizer: dict[str, Any],
    checksums: Sequence[str],
    model_vocab_size: int,
    seq_length: int,
) -> PreparedData:
    used = [dataset for dataset in datasets if dataset.weight]
    content: list[Any] = [
        part for checksum, dataset in zip(checksums, used, strict=True) for part in (checksum, dataset.ranges)
    ]
    if len(used) > 1:
        content.append([dataset.weight for dataset in used])
    return PreparedData(
        source=source,
        embedded=False,
        datasets=tuple(datasets),
        tokenizer=tokenizer,
        seq_length=seq_length,
        fingerprint=hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        ln_vocab=math.log(model_vocab_size),
    )


def _check_vocabulary(name: str, vocab_size: int, model_vocab_size: int) -> None:
    found = vocabulary_problem(name, vocab_size, model_vocab_size)
    if found:
        raise ConfigError(found)

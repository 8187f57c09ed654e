"""Trains tokenizers that give every text back: SentencePiece (unigram, BPE) and byte-level BPE as GPT-2's."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm.corpus.tokenizing.sampling import Sample
from mlm.data.bad_data import BadData
from mlm.data.sentencepiece_training import cut_line, train_on_lines
from mlm.data.tokenizers import GPT2_FILES, Gpt2Tokenizer, SentencePieceTokenizer, Tokenizer
from mlm.data.tokenizers.names import is_control
from mlm.data.tokenizers.round_trip import RoundTrip
from mlm.errors import ConfigError, Problem
from mlm.files import write_whole

KINDS = ("sentencepiece", "bpe")
MODEL_TYPES = ("unigram", "bpe")
SAMPLE_CHARACTERS = 20_000_000
"""Both trainers hold about 50 bytes of memory for each."""
EOD = "<|endoftext|>"
# The characters of the report's round trip: some seconds of encoding.
REPORT_CHARACTERS = 4_000_000
BYTES = 256
# A pair of tokens that occurs once in the whole text is no pattern.
LEAST_COUNT = 2


@dataclass(frozen=True)
class Recipe:
    """What to train. out: a file for sentencepiece, a folder for bpe.

    control: further control tokens, which no text gives. character_coverage: the share of a text whose
    characters get pieces of their own; others go through byte pieces, without byte_fallback to <unk>.
    """

    kind: str
    vocab_size: int
    out: Path
    model_type: str = "unigram"
    character_coverage: float = 0.9995
    byte_fallback: bool = True
    control: tuple[str, ...] = ()
    overwrite: bool = False


def problems(recipe: Recipe) -> list[Problem]:
    """Everything that can be said against a recipe before a text is read."""
    found = []
    if recipe.kind == "bpe":
        least = BYTES + 1 + len(recipe.control)
        if recipe.vocab_size < least:
            found.append(
                Problem(
                    f"--vocab-size={recipe.vocab_size}",
                    f"is less than 256 bytes and {least - BYTES} control tokens",
                    f"use {least} or more",
                )
            )
    if not 0.98 <= recipe.character_coverage <= 1:
        found.append(
            Problem(
                f"--character-coverage={recipe.character_coverage}",
                "is not between 0.98 and 1",
                "0.9995 suits languages of many characters, 1 those of few",
            )
        )
    for name in recipe.control:
        if not is_control(name):
            found.append(
                Problem(f"--control={name}", "is not one word in <> or []", f"write <{name.strip('<>[]')}>")
            )
    repeated = {name for name in recipe.control if recipe.control.count(name) > 1 or name in _own(recipe)}
    found += [Problem(f"--control={name}", "is there already", "leave it out") for name in sorted(repeated)]
    if taken := _out_problem(recipe):
        found.append(taken)
    return found


def _out_problem(recipe: Recipe) -> Problem | None:
    """What stands in the way of the files to be written."""
    out, where = recipe.out, f"--out={recipe.out}"
    if not out.exists():
        return None
    if recipe.kind == "sentencepiece" and out.is_dir():
        return Problem(where, "is a folder", f"give a file: {out / 'tokenizer.model'}")
    if recipe.kind == "bpe" and not out.is_dir():
        return Problem(where, "is a file, and bpe writes a folder", "give another name")
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else [out.name]
    if there and not recipe.overwrite:
        return Problem(where, "exists", "give another name, or --overwrite")
    if out.is_dir() and (others := [name for name in there if name not in GPT2_FILES]):
        return Problem(where, f"holds {others[0]}, which is no part of a tokenizer", "give another name")
    return None


def train_tokenizer(sample: Sample, recipe: Recipe) -> Tokenizer:
    """Train on a sample and write the files; they appear complete or not at all.

    The same sample and recipe give the same bytes. Raises ConfigError with all of `problems`, and BadData
    when the vocabulary does not fit the text, naming the limit, or a file cannot be written.
    """
    if found := problems(recipe):
        raise ConfigError(found)
    if not sample.characters:
        raise BadData("the inputs", "hold no text to train on", "give others, or another --json-keys")
    try:
        recipe.out.parent.mkdir(parents=True, exist_ok=True)
        if recipe.kind == "bpe":
            _write_folder(recipe.out, _byte_bpe(sample, recipe))
            return Gpt2Tokenizer(recipe.out)
        write_whole(recipe.out, _sentencepiece(sample, recipe), durable=True)
        return SentencePieceTokenizer(recipe.out)
    except OSError as error:
        raise BadData(
            f"--out={recipe.out}", f"cannot be written ({error.strerror})", "give another"
        ) from None


def report(tokenizer: Tokenizer, sample: Iterable[str]) -> RoundTrip:
    """What the tokenizer makes of the beginning of a sample, up to REPORT_CHARACTERS."""
    counts = RoundTrip()
    for stretch in sample:
        if counts.characters >= REPORT_CHARACTERS:
            break
        counts.add(tokenizer, stretch)
    return counts


def _own(recipe: Recipe) -> tuple[str, ...]:
    return ("<unk>", "</s>") if recipe.kind == "sentencepiece" else (EOD,)


def _sentencepiece(sample: Sample, recipe: Recipe) -> bytes:
    lines = (part for stretch in sample for line in stretch.split("\n") for part in cut_line(line))
    return train_on_lines(
        lines,
        recipe.vocab_size,
        setting="--vocab-size=",
        model_type=recipe.model_type,
        character_coverage=recipe.character_coverage,
        byte_fallback=recipe.byte_fallback,
        control_symbols=list(recipe.control),
    )


def _byte_bpe(sample: Sample, recipe: Recipe) -> dict[str, bytes]:
    """vocab.json and merges.txt. Ids: bytes, merges in the order of their making, control tokens."""
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import models, pre_tokenizers, trainers

    controls = (*recipe.control, EOD)
    pipeline = Pipeline(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocab_size - len(controls),
        min_frequency=LEAST_COUNT,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    pipeline.train_from_iterator(iter(sample), trainer)
    model: dict[str, Any] = json.loads(pipeline.to_str())["model"]
    vocab: dict[str, int] = model["vocab"]
    most = len(vocab) + len(controls)
    if most < recipe.vocab_size:
        raise BadData(
            f"a vocabulary of {recipe.vocab_size:,}",
            f"is too large for this text, which gives at most {most:,}",
            f"use --vocab-size={most} or less",
        )
    vocab |= {name: len(vocab) + number for number, name in enumerate(controls)}
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    return dict(
        zip(
            GPT2_FILES,
            (json.dumps(vocab, ensure_ascii=False).encode(), f"#version: 0.2\n{merges}".encode()),
            strict=True,
        )
    )


def _write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """A folder with exactly these files, in place of what it held; it is never there in part."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        aside.mkdir()
        for name, content in files.items():
            write_whole(aside / name, content, durable=True)
        if folder.exists():
            for name in files:
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()  # refuses where anything else has been put in meanwhile
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)

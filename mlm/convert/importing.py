"""Foreign weights as a run of ours, which other commands take like one that was trained here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

import mlm
from mlm.checkpoint.folder import LATEST, step_folder
from mlm.checkpoint.locate import CHECKPOINTS
from mlm.checkpoint.manifest import (
    WEIGHTS_ONLY,
    FileRecord,
    Manifest,
    record_of,
    write_manifest,
    write_through,
)
from mlm.checkpoint.state import STATE, TrainingState
from mlm.checkpoint.storage import INDEX
from mlm.config.compose import compose
from mlm.config.resolve import resolved
from mlm.config.schema import DataConfig, ModelConfig, ObjectiveConfig, TokenizerConfig, TrainConfig
from mlm.config.store import save_config
from mlm.convert.consolidate import WEIGHT, check_room
from mlm.convert.declared import declarations, objective_of
from mlm.convert.places import new_folder_problems
from mlm.convert.source import Source
from mlm.convert.tensor_writer import Piece, write_tensors
from mlm.convert.walk import Match, check_copies, match, one
from mlm.data.bad_data import BadData
from mlm.data.prepared import PreparedData
from mlm.data.tokenizers import Tokenizer, keep_tokenizer, kept_files
from mlm.data.tokenizers.configured import build
from mlm.errors import CheckpointError, ConfigError, Problem
from mlm.files import sync, whole_folder, write_whole
from mlm.parallel.parameter import Declaration, initial_value

_WHOLE = "use files that hold the whole model, or --fresh NAME to draw those of our names that begin so"
_TENSORS = "rank_0.safetensors"


@dataclass(frozen=True)
class Imported:
    """What an import has written."""

    run_dir: Path
    model: ModelConfig
    parameters: int
    bytes: int
    tokenizer: str
    fresh: tuple[str, ...]


def import_weights(
    source: Source,
    out: Path,
    *,
    padded_vocab_size: int | None = None,
    tokenizer: Tokenizer | None = None,
    fresh: tuple[str, ...] = (),
    seed: int = 1234,
) -> Imported:
    """Write a run directory with one checkpoint, step_0 without an optimizer's state; whole or not at all.

    padded_vocab_size: rows of the embedding table, None for no padding. tokenizer: in place of the source's.
    fresh: beginnings of our names that are drawn with the seed where the source lacks them. Weights are
    stored in fp32, which holds every value of bf16 and fp16. At most one tensor is in memory, besides the
    source's maps. Raises ConfigError with all that is wrong, before anything is written.
    """
    out = out.expanduser().absolute()
    rows = source.model.vocab_size if padded_vocab_size is None else padded_vocab_size
    model = replace(
        source.model,
        padded_vocab_size=rows,
        ffn_hidden_size=source.model.ffn_hidden_size or 4 * source.model.hidden_size,
    )
    problems = [*new_folder_problems(out), *_row_problems(model)]
    built: Tokenizer | None = None
    try:
        built = _tokenizer(source, tokenizer)
    except ConfigError as error:
        problems += error.problems
    objective = objective_of(source)
    declared: dict[str, Declaration] = {}
    found: Match | None = None
    if not problems:
        try:
            declared = declarations(model, objective)
            shapes = {name: declaration.shape for name, declaration in declared.items()}
            found = match(source, model, shapes, fresh=fresh, remedy=_WHOLE)
            check_copies(source, found)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    assert built is not None, "whatever is missing is among the problems"
    assert found is not None, "whatever is missing is among the problems"

    pieces = [Piece(name, torch.float32, declaration.shape) for name, declaration in declared.items()]
    check_room(out, sum(piece.bytes for piece in pieces))
    tensors = _tensors(source, model, declared, found, seed)
    try:
        with whole_folder(out) as folder:
            description = keep_tokenizer(built.describe(), folder)
            config = _config(source, model, objective, out, built.kind, description)
            save_config(config, folder / "config.yaml")
            write_whole(folder / "data.json", _data(source, model, description).to_json())
            written = _write_checkpoint(folder, pieces, tensors, kept_files(description), source)
    except OSError as error:
        raise CheckpointError(f"{out} could not be written: {error.strerror or error}") from error
    elements = sum(math.prod(piece.shape) for piece in pieces)
    return Imported(out, model, elements, written, built.name, found.fresh)


def _row_problems(model: ModelConfig) -> Iterator[Problem]:
    rows = model.padded_vocab_size
    if rows is not None and rows < model.vocab_size:
        wrong = f"is less than the {model.vocab_size:,} tokens of the model"
        yield Problem(f"--padded-vocab-size={rows}", wrong, f"use {model.vocab_size} or more")


def _tokenizer(source: Source, asked: Tokenizer | None) -> Tokenizer:
    """Raises ConfigError when there is none, it cannot be read, or the model has no rows for its tokens."""
    if asked is None and source.tokenizer is None:
        remedy = "add --tokenizer gpt2, wordpiece:vocab.txt, hf:tokenizer.json or sentencepiece:FILE.model"
        raise ConfigError(Problem(str(source.path), "holds no file of a tokenizer", remedy))
    built = asked
    if built is None:
        assert source.tokenizer is not None, "checked above"
        path = source.tokenizer.path
        config = TokenizerConfig(kind=source.tokenizer.kind, path=None if path is None else str(path))
        try:
            built = build(config, "", Path())
        except BadData as error:
            raise ConfigError(error.problem) from None
    if built.vocab_size > source.model.vocab_size:
        wrong = f"has {built.vocab_size:,} tokens, and the model rows for {source.model.vocab_size:,}"
        remedy = "name the tokenizer that the model was trained with, as --tokenizer"
        raise ConfigError(Problem(f"the {built.kind} tokenizer", wrong, remedy))
    return built


def _tensors(
    source: Source, model: ModelConfig, declared: Mapping[str, Declaration], found: Match, seed: int
) -> Iterator[Tensor]:
    for name, declaration in declared.items():
        if name in found.entries:
            yield one(source, model, found.entries[name])
        else:
            yield initial_value(name, declaration, seed)


def _config(
    source: Source,
    model: ModelConfig,
    objective: str,
    out: Path,
    kind: str,
    description: Mapping[str, object],
) -> TrainConfig:
    """What other commands look up: the model and its tokenizer. Of the rest nothing was used."""
    path = description.get("path")
    config = replace(
        compose([]),
        model=model,
        objective=ObjectiveConfig(name=objective),
        tokenizer=TokenizerConfig(kind=kind, path=None if path is None else str(out / str(path))),
        data=DataConfig(name=f"not trained here: {source.format}", split=[1.0, 0.0, 0.0]),
        init_from=str(source.path.absolute()),
    )
    return resolved(config, device="cpu", processes=1, threads=1, precision="fp32", run_dir=out)


def _data(source: Source, model: ModelConfig, description: dict[str, object]) -> PreparedData:
    return PreparedData(
        source=f"not trained here: weights of {source.path.absolute()}",
        embedded=False,
        datasets=(),
        tokenizer=description,
        seq_length=model.seq_length,
        fingerprint=hashlib.sha256(b"").hexdigest(),
        ln_vocab=math.log(model.vocab_size),
    )


def _write_checkpoint(
    folder: Path, pieces: list[Piece], tensors: Iterator[Tensor], kept: list[str], source: Source
) -> int:
    """The checkpoint of step 0; returns its bytes."""
    directory = step_folder(folder / CHECKPOINTS, 0)
    directory.mkdir(parents=True)
    stored = [replace(piece, name=f"{WEIGHT}{piece.name}[{_zeros(piece)}]") for piece in pieces]
    with (directory / _TENSORS).open("xb") as file:
        written = write_tensors(file, stored, tensors, {"format": "pt"})
        sync(file)
    files: dict[str, FileRecord] = {_TENSORS: written.record}
    index = {
        f"{WEIGHT}{piece.name}": {
            "dtype": "F32",
            "shape": list(piece.shape),
            "chunks": [
                {
                    "offsets": [0] * len(piece.shape),
                    "shape": list(piece.shape),
                    "file": _TENSORS,
                    "start": written.starts[named.name],
                }
            ],
        }
        for piece, named in zip(pieces, stored, strict=True)
    }
    files[INDEX] = write_through(directory / INDEX, json.dumps({"tensors": index}) + "\n")
    files[STATE] = write_through(directory / STATE, TrainingState().to_json())
    for name in ("config.yaml", "data.json", *kept):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes((folder / name).read_bytes())
        files[name] = record_of(directory / name)
    about = {
        "mlm": mlm.__version__,
        "torch": str(torch.__version__),
        WEIGHTS_ONLY: True,
        "imported_from": str(source.path.absolute()),
        "format": source.format,
    }
    manifest = Manifest(0, files, about)
    write_manifest(directory, manifest)
    write_whole(directory.parent / LATEST, f"{directory.name}\n")
    return manifest.total_bytes


def _zeros(piece: Piece) -> str:
    return ",".join("0" for _ in piece.shape)

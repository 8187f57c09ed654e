"""A checkpoint as transformers loads one: config.json, tokenizer files, model.safetensors."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlm.convert.consolidate import check_room
from mlm.convert.dtypes import FORMATS
from mlm.convert.exporting import Outgoing
from mlm.convert.huggingface.config import config_of, unsayable
from mlm.convert.huggingface.source import CONFIG, TABLES
from mlm.convert.huggingface.tokenizer import write_tokenizer
from mlm.convert.places import new_folder_problems
from mlm.convert.tensor_writer import Piece, write_tensors
from mlm.convert.walk import outgoing
from mlm.errors import CheckpointError, ConfigError
from mlm.files import sync, whole_folder, write_whole
from mlm.models.names import Entry

SHARD_BYTES = 5_000_000_000
"""Where a further file begins, as transformers has it."""
_BARE = ("lm_head.", "cls.")
"""Names that stand beside the trunk, which alone has a prefix."""


@dataclass(frozen=True)
class Exported:
    """What an export has written. note: what it lacks, for people; empty when nothing."""

    folder: Path
    model_class: str
    tensors: int
    elements: int
    bytes: int
    files: tuple[str, ...]
    note: str


def export(out: Path, sent: Outgoing, *, dtype: str = "fp32", shard_bytes: int = SHARD_BYTES) -> Exported:
    """Write the folder, whole or not at all; of the vocabulary only rows of real tokens.

    dtype: of the weights, fp32, bf16 or fp16. At most one tensor is in memory, besides the checkpoint's maps.
    Raises ConfigError when the model has something that the other side has no word for, or the place is
    taken, CheckpointError when a weight does not fit the dtype.
    """
    out, model = out.expanduser().absolute(), sent.model
    problems = [*new_folder_problems(out), *unsayable(model)]
    if problems:
        raise ConfigError(problems)
    plan = outgoing(TABLES[model.architecture], model, sent.shapes)
    entries = [entry for entry, _ in plan]
    heads = any(name.startswith(_BARE) for entry in entries for name in entry.theirs)
    content, model_class = config_of(model, FORMATS[dtype], has_heads=heads, special=sent.tokenizer.special)
    trunk_alone = not model_class.endswith(("LMHeadModel", "ForPreTraining"))
    prefix = "" if trunk_alone else TABLES[model.architecture].prefixes[0]
    pieces = [
        Piece(_full_name(name, prefix), FORMATS[dtype], shape)
        for entry, shapes in plan
        for name, shape in zip(entry.theirs, shapes, strict=True)
    ]
    total = sum(piece.bytes for piece in pieces)
    check_room(out, total)
    try:
        with whole_folder(out) as folder:
            write_whole(folder / CONFIG, json.dumps(content, indent=2) + "\n")
            note = write_tokenizer(sent.tokenizer, folder, model.seq_length)
            files = _write_weights(folder, pieces, entries, sent, shard_bytes, total)
    except OSError as error:
        raise CheckpointError(f"{out} could not be written: {error.strerror or error}") from error
    elements = sum(math.prod(piece.shape) for piece in pieces)
    return Exported(out, model_class, len(pieces), elements, total, tuple(files), note)


def _full_name(name: str, prefix: str) -> str:
    return name if name.startswith(_BARE) else prefix + name


def _write_weights(
    folder: Path, pieces: Sequence[Piece], entries: Sequence[Entry], sent: Outgoing, limit: int, total: int
) -> list[str]:
    shards: list[list[Piece]] = [[]]
    for piece in pieces:
        if shards[-1] and sum(each.bytes for each in shards[-1]) + piece.bytes > limit:
            shards.append([])
        shards[-1].append(piece)
    tensors = sent.theirs(entries)
    names = ["model.safetensors"]
    if len(shards) > 1:
        names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
        where = {piece.name: name for name, shard in zip(names, shards, strict=True) for piece in shard}
        index = {"metadata": {"total_size": total}, "weight_map": where}
        write_whole(folder / "model.safetensors.index.json", json.dumps(index, indent=2) + "\n")
    for name, shard in zip(names, shards, strict=True):
        with (folder / name).open("xb") as file:
            write_tensors(file, shard, tensors, {"format": "pt"})
            sync(file)
    return names

"""Weights of ours as a Megatron-LM checkpoint: a file per tensor-parallel rank, written side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlm.config.schema import LayerNormPlacement, ModelConfig
from mlm.convert.dtypes import narrowed
from mlm.convert.forms import FORMS, Shape
from mlm.convert.megatron.files import NAMES, RELEASE, TRACKER
from mlm.convert.megatron.layout import has_vocabulary_rows, part, split_dim
from mlm.convert.megatron.options import DIVISIBLE_BY, options_of, padded
from mlm.convert.torch_file import Later, TorchFile
from mlm.convert.walk import outgoing
from mlm.errors import ConfigError, Problem
from mlm.files import sync
from mlm.models.megatron_names import NEW, OLD, bert_table, gpt_table
from mlm.models.names import Entry

VERSIONS = (0, 1, 2, 3)


@dataclass(frozen=True)
class Tree:
    """What is written: every parameter of ours (name -> full shape), with its dtype there, for tp ranks.

    tokenizer: Megatron-LM's tokenizer_type, None: it has none.
    """

    model: ModelConfig
    shapes: Mapping[str, Shape]
    dtype: torch.dtype
    tp: int
    version: int
    tokenizer: str | None = None

    @property
    def rows(self) -> int:
        """Of the embedding table as Megatron-LM pads it for so many ranks."""
        return padded(self.model.vocab_size, DIVISIBLE_BY, self.tp)

    @property
    def bytes(self) -> int:
        """Of all tensors in all files."""
        ranks = range(self.tp)
        return sum(
            torch.Size(self._there(name, shape)).numel() * self.dtype.itemsize
            for entry, (shape,) in self._entries()
            for name in entry.theirs
            for _ in ranks
        )

    def check(self) -> None:
        """Raises ConfigError with all that Megatron-LM has no place for."""
        model, problems = self.model, list[Problem]()
        if self.version not in VERSIONS:
            problems.append(Problem(f"version {self.version}", "is unknown", "use 0, 1, 2 or 3"))
        if self.tp < 1:
            problems.append(Problem(f"tp={self.tp}", "is no number of ranks", "use 1 or more"))
        ffn = model.ffn_hidden_size or 4 * model.hidden_size
        for key, size in (("num_heads", model.num_heads), ("ffn_hidden_size", ffn)):
            if self.tp > 0 and size % self.tp:
                fits = ", ".join(str(n) for n in range(1, size + 1) if not (size % n or model.num_heads % n))
                wrong = f"is not a multiple of tp={self.tp}"
                problems.append(Problem(f"model.{key}={size}", wrong, f"use tp {fits}"))
        if not model.bias:
            wrong = "has no place in Megatron-LM's classic format, whose LayerNorms have biases"
            problems.append(Problem("model.bias=false", wrong, "use mlm-convert consolidate"))
        if model.layernorm is not LayerNormPlacement.pre:
            wrong = "has no place in Megatron-LM, whose LayerNorms stand before each sub-layer"
            problems.append(Problem(f"model.layernorm={model.layernorm.name}", wrong, "use --to hf"))
        if model.architecture != "bert" and not model.tie_embeddings and self.version < 2:
            wrong = f"has no place in version {self.version}, whose output layer is the embedding table"
            problems.append(Problem("model.tie_embeddings=false", wrong, "use version 2 or 3"))
        if problems:
            raise ConfigError(problems)
        self._entries()

    def write(self, folder: Path, tensor: Callable[[str], Tensor], step: int) -> None:
        """Fill an empty folder; tensor gives one full tensor of ours, asked for once each.

        One tensor is in memory at a time, whatever tp is: all ranks' files are open together. The folder is
        called release, which tells Megatron-LM that there is no optimizer's state to look for. Raises
        CheckpointError for values that the dtype cannot hold, OSError.
        """
        entries = self._entries()
        with ExitStack() as stack:
            files = []
            for rank in range(self.tp):
                place = folder / RELEASE / f"mp_rank_{rank:02d}" / NAMES[0]
                place.parent.mkdir(parents=True)
                file = stack.enter_context(place.open("xb"))
                stack.callback(sync, file)
                files.append(stack.enter_context(TorchFile(file, self._content(entries, step))))
            for entry, _ in entries:
                self._write_one(files, entry, tensor(entry.ours))
        (folder / TRACKER).write_text(RELEASE, encoding="utf-8")

    def _write_one(self, files: list[TorchFile], entry: Entry, ours: Tensor) -> None:
        (theirs,) = FORMS[entry.form].to_theirs(ours, self.model)
        (name,) = entry.theirs
        if has_vocabulary_rows(name) and self.rows != len(theirs):
            table = torch.zeros((self.rows, *theirs.shape[1:]), dtype=theirs.dtype)
            table[: len(theirs)] = theirs
            theirs = table
        for rank, file in enumerate(files):
            mine = part(name, theirs, rank, tp=self.tp, version=self.version, heads=self.model.num_heads)
            file.write(name, narrowed(mine, self.dtype, name))

    def _entries(self) -> list[tuple[Entry, list[Shape]]]:
        """Raises ConfigError for parameters that Megatron-LM has no name for."""
        make = bert_table if self.model.architecture == "bert" else gpt_table
        return outgoing(make(OLD if self.version < 3 else NEW), self.model, self.shapes)

    def _there(self, name: str, whole: Shape) -> Shape:
        """A rank's part of a tensor whose shape without padding is given."""
        shape, dim = list(whole), split_dim(name)
        if has_vocabulary_rows(name):
            shape[0] = self.rows
        if dim is not None:
            shape[dim] //= self.tp
        return tuple(shape)

    def _content(self, entries: list[tuple[Entry, list[Shape]]], step: int) -> dict[str, Any]:
        model: dict[str, Any] = {}
        for entry, (shape,) in entries:
            (name,) = entry.theirs
            *path, leaf = _nested(name)
            place = model
            for key in path:
                place = place.setdefault(key, {})
            place[leaf] = Later(name, self.dtype, self._there(name, shape))
        options = options_of(
            self.model, tp=self.tp, rows=self.rows, dtype=self.dtype, tokenizer=self.tokenizer
        )
        return {
            "iteration": step,
            "checkpoint_version": float(self.version),
            "args": argparse.Namespace(**options),
            "model": model,
        }


def _nested(name: str) -> list[str]:
    """Its keys, dictionary in dictionary: each part of the model has one, names inside a part have dots."""
    depth = 1
    if name.startswith("language_model."):
        depth = 3 if name.startswith("language_model.embedding.") else 2
    return name.split(".", depth)

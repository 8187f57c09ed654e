"""A checkpoint on its way out: what it holds, read a full tensor at a time, whatever layout wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from mlm.checkpoint.locate import Checkpoint
from mlm.checkpoint.manifest import damage
from mlm.checkpoint.storage import read_index
from mlm.config.schema import ModelConfig, TrainConfig
from mlm.config.store import load_config
from mlm.convert.consolidate import WEIGHT, full_tensor
from mlm.convert.forms import FORMS, Shape
from mlm.data.tokenizers import Tokenizer
from mlm.errors import CheckpointError
from mlm.eval.locate import read_tokenizer
from mlm.models.names import Entry


@dataclass(frozen=True)
class Outgoing:
    """A whole checkpoint. shapes: of the full parameters, by our names."""

    checkpoint: Checkpoint
    config: TrainConfig
    tokenizer: Tokenizer
    stored: Mapping[str, Any]

    @property
    def model(self) -> ModelConfig:
        return self.config.model

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        return {name: tuple(tensor["shape"]) for name, tensor in self.stored.items()}

    def tensor(self, name: str) -> Tensor:
        """A full parameter by our name; the mapped file itself where one shard holds all of it."""
        return full_tensor(self.checkpoint.directory, name, self.stored[name])

    def theirs(self, entries: Iterable[Entry]) -> Iterator[Tensor]:
        """Their tensors of these entries, one after the other."""
        for entry in entries:
            yield from FORMS[entry.form].to_theirs(self.tensor(entry.ours), self.model)


def outgoing(checkpoint: Checkpoint) -> Outgoing:
    """Raises CheckpointError when the checkpoint is damaged, or its tokenizer's files are gone."""
    flaws = damage(checkpoint.directory)
    if flaws:
        raise CheckpointError(f"{checkpoint.directory.name} is damaged: {'; '.join(flaws)}")
    index = read_index(checkpoint.directory)
    stored = {n.removeprefix(WEIGHT): t for n, t in index.items() if n.startswith(WEIGHT)}
    return Outgoing(checkpoint, load_config(checkpoint.config_path), read_tokenizer(checkpoint), stored)

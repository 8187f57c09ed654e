"""A source of weights in memory, for tests of what happens to any source."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from mlm.config.schema import ModelConfig
from mlm.convert.source import FoundTokenizer
from mlm.models.names import Table


class InMemory:
    """Named tensors as a Source, each handed out as a copy; most counts how many copies lived at once."""

    path, format = Path("/weights"), "tests' own"

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        model: ModelConfig,
        table: Table,
        tokenizer: FoundTokenizer | None = None,
    ):
        self.tensors, self.model, self.table, self.tokenizer = dict(tensors), model, table, tokenizer
        self.most = 0
        self._given: list[weakref.ref[Tensor]] = []

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def tensor(self, name: str) -> Tensor:
        copy = self.tensors[name].clone()
        self._given = [given for given in self._given if given() is not None]
        self._given.append(weakref.ref(copy))
        self.most = max(self.most, len(self._given))
        return copy

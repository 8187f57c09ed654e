"""What a foreign checkpoint has to offer, whatever program wrote it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mlm.config.schema import ModelConfig
from mlm.models.names import Table

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FoundTokenizer:
    """The files of a tokenizer beside the weights: a kind of mlm.data.tokenizers.KINDS, and its path."""

    kind: str
    path: Path | None
    """What TokenizerConfig.path takes; None: the files that are shipped with mlm."""


class Source(Protocol):
    """Weights of another program, open for reading; nothing but headers is read until tensor() is called.

    path: as the user named it. format: for people, 'Hugging Face GPT-2'. shapes: of every tensor, by the
    names in the files; of tensors that lie in several files (tensor-parallel shards), of the whole ones.
    model: what the files say of it, padded_vocab_size null, name taken from the path. tokenizer: None where
    the files hold none. table: names of that model in this format. cautions: what will not be quite the same,
    a sentence each.
    """

    path: Path
    format: str
    model: ModelConfig
    tokenizer: FoundTokenizer | None
    table: Table
    cautions: tuple[str, ...]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def tensor(self, name: str) -> Tensor:
        """The whole tensor, a view of a mapped file where that is possible; its dtype is the file's."""


@dataclass(frozen=True)
class Reading:
    """How foreign files are read.

    allow_pickle: also files that could run code. num_heads, vocab_size: answers to what some formats do not
    say; None: not given.
    """

    allow_pickle: bool = False
    num_heads: int | None = None
    vocab_size: int | None = None

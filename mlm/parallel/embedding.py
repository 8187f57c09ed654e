"""Embedding tables: split along the vocabulary (paper, section 3), and replicated for positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mlm.parallel.collectives import reduce_from_tp
from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import Declaration, DeclaringModule


class VocabParallelEmbedding(DeclaringModule):
    """E = [E_1; ..; E_t], rank i holding a run of V/t rows of the table (paper, section 3).

    Each rank looks up the ids it owns and puts zeros for the others; g sums the ranks' answers, of which
    exactly one is not zero. The same table, transposed, is the output layer when embeddings are tied.

    Shapes: ids [batch, seq] -> [batch, seq, hidden], equal on all ranks.
    Parameters: weight [padded_vocab/tp, hidden], split on dim 0; rows from vocab_size on are padding and
    start at zero. Raises ConfigError when padded_vocab_size is not a multiple of tp.size.
    """

    def __init__(
        self,
        vocab_size: int,
        padded_vocab_size: int,
        hidden_size: int,
        *,
        tp: Axis,
        init_std: float,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(tp)
        self.weight = self.declare(
            "weight",
            Declaration(
                (padded_vocab_size, hidden_size), split_dim=0, init_std=init_std, drawn_rows=vocab_size
            ),
            dtype,
        )

    def forward(self, ids: Tensor) -> Tensor:
        if self.tp.size == 1:
            return F.embedding(ids, self.weight)
        rows = self.weight.shape[0]
        local = ids - self.tp.rank * rows
        foreign = (local < 0) | (local >= rows)  # [batch, seq]
        # An id of another rank reads row 0 and is zeroed: masking by index would make the host wait.
        looked_up = F.embedding(local.masked_fill(foreign, 0), self.weight)
        return reduce_from_tp(looked_up.masked_fill(foreign.unsqueeze(-1), 0.0), self.tp)

    def extra_repr(self) -> str:
        full = self.declarations["weight"].shape
        return (
            f"weight={list(self.weight.shape)} of {list(full)}, vocabulary {self.tp.rank + 1}/{self.tp.size}"
        )


class PositionEmbedding(DeclaringModule):
    """A learned vector per position, or per segment of a sample, held by every rank.

    Shapes: a length seq -> [seq, hidden]. Parameters: weight [seq_length, hidden], replicated.
    """

    def __init__(
        self,
        seq_length: int,
        hidden_size: int,
        *,
        tp: Axis,
        init_std: float,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(tp)
        self.weight = self.declare("weight", Declaration((seq_length, hidden_size), init_std=init_std), dtype)

    def forward(self, seq: int) -> Tensor:
        return self.weight[:seq]

    def at(self, positions: Tensor) -> Tensor:
        """The vectors of given positions. Shapes: [batch, seq] -> [batch, seq, hidden]."""
        return F.embedding(positions, self.weight)

    def extra_repr(self) -> str:
        return f"weight={list(self.weight.shape)}"

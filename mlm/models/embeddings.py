"""What stands before the first layer and after the last: token and position embeddings, output layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlm.models.design import Design
from mlm.parallel.collectives import copy_to_tp
from mlm.parallel.cross_entropy import linear_cross_entropy
from mlm.parallel.embedding import PositionEmbedding, VocabParallelEmbedding
from mlm.parallel.mesh import Axis
from mlm.parallel.norm import LayerNorm
from mlm.parallel.parameter import Declaration, DeclaringModule
from mlm.parallel.scoring import linear_scores


class Embedding(nn.Module):
    """Dropout(word[ids] + position[positions]), positions being 0 to seq - 1 unless they are given.

    BERT adds segment[segments] too, the same kind of table with a row per segment, and in its original form
    norm, a LayerNorm, before the dropout.

    Shapes: ids, positions, segments [batch, seq] -> [batch, seq, hidden], equal on all tp ranks.
    """

    def __init__(
        self,
        word: VocabParallelEmbedding,
        position: PositionEmbedding,
        dropout: float,
        *,
        segment: PositionEmbedding | None = None,
        norm: LayerNorm | None = None,
    ):
        super().__init__()
        self.word = word
        self.position = position
        self.segment = segment
        self.norm = norm
        self.dropout = dropout

    def forward(self, ids: Tensor, positions: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        at = self.position(ids.shape[1]) if positions is None else self.position.at(positions)
        x = self.word(ids) + at
        if self.segment is not None and segments is not None:
            x = x + self.segment.at(segments)
        if self.norm is not None:
            x = self.norm(x)
        return F.dropout(x, self.dropout, self.training)


class OutputLayer(DeclaringModule):
    """Logits Z = X E^T, split along the vocabulary as E is (paper, section 3).

    tied: the embedding's own weight [padded_vocab/tp, hidden]; None: a parameter of its own.
    """

    def __init__(
        self,
        vocab_size: int,
        padded_vocab_size: int,
        hidden_size: int,
        *,
        tp: Axis,
        tied: nn.Parameter | None,
        init_std: float,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(tp)
        self.vocab_size = vocab_size
        if tied is None:
            declaration = Declaration(
                (padded_vocab_size, hidden_size), split_dim=0, init_std=init_std, drawn_rows=vocab_size
            )
            self.declare("weight", declaration, dtype)
        else:
            self.weight = tied

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, seq, padded_vocab/tp] of x [batch, seq, hidden]."""
        return F.linear(copy_to_tp(x, self.tp), self.weight)

    def loss(self, x: Tensor, targets: Tensor, token_weights: Tensor) -> Tensor:
        """Sum of token_weights * negative log likelihood in nats, a scalar; the logits are never whole."""
        return linear_cross_entropy(x, self.weight, targets, token_weights, self.tp, self.vocab_size)

    def scores(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Negative log likelihood in nats of each target, and the id of the largest logit; no gradients.

        Shapes: x [tokens, hidden], targets [tokens] -> 2 x [tokens], equal on all tp ranks.
        """
        return linear_scores(x, self.weight, targets, self.tp, self.vocab_size)


def word_embedding_of(design: Design, tp: Axis, dtype: torch.dtype) -> VocabParallelEmbedding:
    """The table of tokens."""
    return VocabParallelEmbedding(
        design.vocab_size,
        design.padded_vocab_size,
        design.hidden_size,
        tp=tp,
        init_std=design.init_std,
        dtype=dtype,
    )


def row_embedding_of(design: Design, rows: int, tp: Axis, dtype: torch.dtype) -> PositionEmbedding:
    """A table of positions, or of segments, with so many rows."""
    return PositionEmbedding(rows, design.hidden_size, tp=tp, init_std=design.init_std, dtype=dtype)

"""GPT-2: a left-to-right transformer (paper, sections 2.2 and 3), split over the tensor-parallel axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlm.models.block import LayerDesign
from mlm.models.cache import LayerCache
from mlm.models.embeddings import Embedding, OutputLayer
from mlm.parallel.embedding import PositionEmbedding, VocabParallelEmbedding
from mlm.parallel.mesh import Axis
from mlm.parallel.rng import RngStreams


class Gpt2(nn.Module):
    """Embeddings, num_layers pre-LayerNorm blocks, a final LayerNorm, an output layer.

    Shapes: ids [batch, seq] -> logits [batch, seq, padded_vocab/tp], or with targets and token_weights
    [batch, seq] the scalar sum of token_weight * nll in nats, equal on all tp ranks. Of several documents
    packed into one sample, positions [batch, seq] are those inside the documents (None: 0 to seq - 1), and
    first_key [batch, seq] is the first position that each one attends to (None: 0).
    """

    def __init__(
        self,
        *,
        num_layers: int,
        hidden_size: int,
        num_heads: int,
        ffn_hidden_size: int,
        seq_length: int,
        vocab_size: int,
        padded_vocab_size: int,
        tie_embeddings: bool,
        bias: bool,
        gelu: str,
        layernorm_eps: float,
        dropout: float,
        attention_dropout: float,
        init_std: float,
        tp: Axis,
        rng: RngStreams,
        overlap: bool = True,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        design = LayerDesign(
            hidden_size=hidden_size,
            num_heads=num_heads,
            ffn_hidden_size=ffn_hidden_size,
            bias=bias,
            gelu=gelu,
            layernorm_eps=layernorm_eps,
            dropout=dropout,
            attention_dropout=attention_dropout,
            init_std=init_std,
            # Each layer adds two terms to the residual stream; without the factor its variance would grow
            # with depth (section 4.2).
            projection_init_std=init_std / math.sqrt(2 * num_layers),
        )
        word = VocabParallelEmbedding(
            vocab_size, padded_vocab_size, hidden_size, tp=tp, init_std=init_std, dtype=dtype
        )
        position = PositionEmbedding(seq_length, hidden_size, tp=tp, init_std=init_std, dtype=dtype)
        self.embedding = Embedding(word, position, dropout)
        self.layers = design.layers(num_layers, tp=tp, rng=rng, overlap=overlap, dtype=dtype)
        self.final_norm = design.norm(tp, dtype)
        self.head = OutputLayer(
            vocab_size,
            padded_vocab_size,
            hidden_size,
            tp=tp,
            tied=word.weight if tie_embeddings else None,
            init_std=init_std,
            dtype=dtype,
        )

    def forward(
        self,
        ids: Tensor,
        targets: Tensor | None = None,
        token_weights: Tensor | None = None,
        positions: Tensor | None = None,
        first_key: Tensor | None = None,
    ) -> Tensor:
        x = self.hidden_states(ids, positions=positions, first_key=first_key)
        if targets is None or token_weights is None:
            return self.head(x)
        return self.head.loss(x, targets, token_weights)

    def hidden_states(
        self,
        ids: Tensor,
        at: Tensor | None = None,
        positions: Tensor | None = None,
        first_key: Tensor | None = None,
        caches: Sequence[LayerCache] | None = None,
    ) -> Tensor:
        """What the output layer reads, of all positions or only of those that a caller needs.

        at: numbers of positions in the flattened [batch * seq]. The last layer's MLP, behind which positions
        no longer meet, is then spared for all others. caches: one a layer, of a KeyValueCache.

        Shapes: ids [batch, seq] -> [batch, seq, hidden], or with at [n] -> [n, hidden]; equal on all tp
        ranks.
        """
        x = self.embedding(ids, positions)  # [batch, seq, hidden]
        *most, last = self.layers
        of_layers: Sequence[LayerCache | None] = caches or [None] * len(self.layers)
        *caches_of_most, cache_of_last = of_layers
        for layer, cache in zip(most, caches_of_most, strict=True):
            x = layer(x, first_key=first_key, cache=cache)
        return self.final_norm(last(x, at, first_key=first_key, cache=cache_of_last))

"""GPT-2: a left-to-right transformer (paper, sections 2.2 and 3), split over the tensor-parallel axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlm.models.block import layers_of, norm_of
from mlm.models.cache import LayerCache
from mlm.models.design import Design
from mlm.models.embeddings import Embedding, OutputLayer, row_embedding_of, word_embedding_of
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
        design: Design,
        *,
        tp: Axis,
        rng: RngStreams,
        overlap: bool = True,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        word = word_embedding_of(design, tp, dtype)
        position = row_embedding_of(design, design.seq_length, tp, dtype)
        self.embedding = Embedding(word, position, design.dropout)
        self.layers = layers_of(design, causal=True, tp=tp, rng=rng, overlap=overlap, dtype=dtype)
        self.final_norm = norm_of(design, tp, dtype)
        self.head = OutputLayer(
            design.vocab_size,
            design.padded_vocab_size,
            design.hidden_size,
            tp=tp,
            tied=word.weight if design.tie_embeddings else None,
            init_std=design.init_std,
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

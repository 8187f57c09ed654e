"""BERT: a transformer that sees both sides (paper, sections 2.2 and 5.3), split over the tp axis."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlm.models.block import layers_of, norm_of
from mlm.models.design import Design
from mlm.models.embeddings import Embedding, row_embedding_of, word_embedding_of
from mlm.parallel.cross_entropy import linear_cross_entropy_and_hits
from mlm.parallel.linear import ReplicatedLinear
from mlm.parallel.mesh import Axis
from mlm.parallel.norm import LayerNorm
from mlm.parallel.parameter import Declaration, DeclaringModule
from mlm.parallel.rng import RngStreams


class Bert(nn.Module):
    """Embeddings of word, position and segment, num_layers blocks, and a pooler over the first position.

    layernorm, where the LayerNorms stand (figure 7): post, as in the original: after each residual addition
    and after the embeddings; pre: at the input of each sub-layer, and one after the last layer.

    Shapes: ids, segments [batch, seq] int64, real [batch, seq] bool, False where a sample is padded.
    """

    def __init__(
        self,
        design: Design,
        *,
        tp: Axis,
        rng: RngStreams,
        pooler: bool = True,
        overlap: bool = True,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        post = design.layernorm == "post"
        self.embedding = Embedding(
            word_embedding_of(design, tp, dtype),
            row_embedding_of(design, design.seq_length, tp, dtype),
            design.dropout,
            segment=row_embedding_of(design, design.segments, tp, dtype),
            norm=norm_of(design, tp, dtype) if post else None,
        )
        self.layers = layers_of(design, causal=False, tp=tp, rng=rng, overlap=overlap, dtype=dtype)
        self.final_norm = None if post else norm_of(design, tp, dtype)
        self.pooler = head_of(design, design.hidden_size, tp, dtype) if pooler else None

    def forward(self, ids: Tensor, segments: Tensor, real: Tensor) -> Tensor:
        return self.hidden_states(ids, segments, real)

    def hidden_states(self, ids: Tensor, segments: Tensor, real: Tensor) -> Tensor:
        """What the heads read: [batch, seq, hidden], equal on all tp ranks; of padding, without meaning."""
        x = self.embedding(ids, segments=segments)  # [batch, seq, hidden]
        for layer in self.layers:
            x = layer(x, real=real)
        return x if self.final_norm is None else self.final_norm(x)

    def pooled(self, hidden: Tensor) -> Tensor:
        """tanh(W h_0 + b), h_0 at the first position, [CLS]: [batch, seq, hidden] -> [batch, hidden]."""
        assert self.pooler is not None, "this model was built without a pooler"
        return torch.tanh(self.pooler(hidden[:, 0]))


def head_of(design: Design, outputs: int, tp: Axis, dtype: torch.dtype) -> ReplicatedLinear:
    """A linear layer on top of the encoder, on every rank whole."""
    return ReplicatedLinear(design.hidden_size, outputs, tp=tp, init_std=design.init_std, dtype=dtype)


class MaskedLmHead(DeclaringModule):
    """Logits LN(GeLU(W h + b)) E^T + c of masked tokens, E being the embedding table, split by vocabulary.

    W is on every rank whole; c is split as E is. Parameters: dense [hidden, hidden], norm [hidden], bias c
    [padded_vocab/tp].
    """

    def __init__(self, table: nn.Parameter, design: Design, tp: Axis, dtype: torch.dtype = torch.float32):
        super().__init__(tp)
        self.vocab_size = design.vocab_size
        self.approximate = "tanh" if design.gelu == "tanh" else "none"
        self.dense = head_of(design, design.hidden_size, tp, dtype)
        self.norm = LayerNorm(design.hidden_size, tp=tp, eps=design.layernorm_eps, dtype=dtype)
        self.bias = self.declare("bias", Declaration((design.padded_vocab_size,), split_dim=0), dtype)
        # In a list, so that it is not a parameter of this module too.
        self._table = [table]

    def loss(self, hidden: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of weight * nll in nats and of weight where the target has the largest logit; two scalars.

        Shapes: hidden [..., hidden], targets and weights [...]; equal on all tp ranks.
        """
        x = self.norm(F.gelu(self.dense(hidden), approximate=self.approximate))
        return linear_cross_entropy_and_hits(
            x, self._table[0], targets, weights, self.tp, self.vocab_size, bias=self.bias
        )


class BertForPretraining(Bert):
    """Bert with its two tasks (section 4.3): masked tokens, and whether two segments are in their order.

    forward gives the loss, a scalar, and four figures without gradient, float64 [4]: masked nll, order nll,
    masked hits, order hits, each a sum by the weights of the samples and tokens. The loss is the sum of the
    first two.

    Shapes: ids, segments, real [batch, seq]; masked_at [batch, K], positions in the sample; masked_ids,
    their targets, and masked_weights, 0 for unused places, [batch, K]; swapped int64 [batch], 1 where the
    second segment stands first; order_weights [batch].
    """

    def __init__(self, design: Design, *, tp: Axis, dtype: torch.dtype = torch.float32, **others: Any):
        super().__init__(design, tp=tp, dtype=dtype, **others)
        self.lm_head = MaskedLmHead(self.embedding.word.weight, design, tp, dtype)
        self.order_head = head_of(design, 2, tp, dtype)

    def forward(  # type: ignore[override]  # the tasks need more than the encoder
        self,
        ids: Tensor,
        segments: Tensor,
        real: Tensor,
        masked_at: Tensor,
        masked_ids: Tensor,
        masked_weights: Tensor,
        swapped: Tensor,
        order_weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        hidden = self.hidden_states(ids, segments, real)
        at = masked_at.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])  # [batch, K, hidden]
        masked_nll, masked_hits = self.lm_head.loss(hidden.gather(1, at), masked_ids, masked_weights)
        logits = self.order_head(self.pooled(hidden))  # [batch, 2]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        weights = order_weights.to(logits.dtype)
        order_nll = F.cross_entropy(logits, swapped, reduction="none") @ weights
        order_hits = (logits.argmax(1) == swapped).to(logits.dtype) @ weights
        figures = torch.stack([f.detach().double() for f in (masked_nll, order_nll, masked_hits, order_hits)])
        return masked_nll + order_nll, figures

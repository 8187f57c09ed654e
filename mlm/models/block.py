"""One transformer layer, in its two forms, and how all layers of a model are made."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlm.models.attention import SelfAttention
from mlm.models.cache import LayerCache
from mlm.models.design import Design
from mlm.models.mlp import Mlp
from mlm.parallel.mesh import Axis
from mlm.parallel.norm import LayerNorm
from mlm.parallel.rng import RngStreams


class Block(nn.Module):
    """x + Dropout(Attention(LN(x))), then x + Dropout(Mlp(LN(x))): LayerNorm at the input of each sub-layer.

    Residuals, dropout and LayerNorm are computed on every tp rank alike (paper, section 3): the layer
    communicates only inside attention and MLP, twice forward and twice backward.

    Shapes: [batch, seq, hidden] -> [batch, seq, hidden], equal on all tp ranks; with at [n], numbers of
    positions in the flattened [batch * seq], [n, hidden]: only these go through the MLP. first_key, real
    [batch, seq] and cache: as in SelfAttention.
    """

    def __init__(
        self,
        attention_norm: LayerNorm,
        attention: SelfAttention,
        mlp_norm: LayerNorm,
        mlp: Mlp,
        dropout: float,
    ):
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.mlp_norm = mlp_norm
        self.mlp = mlp
        self.dropout = dropout

    def forward(
        self,
        x: Tensor,
        at: Tensor | None = None,
        first_key: Tensor | None = None,
        real: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        attended = self.attention(self.attention_norm(x), first_key, real, cache)
        x = x + F.dropout(attended, self.dropout, self.training)
        if at is not None:
            x = x.flatten(0, 1)[at]  # [n, hidden]
        return x + F.dropout(self.mlp(self.mlp_norm(x)), self.dropout, self.training)


class PostNormBlock(Block):
    """LN(x + Dropout(Attention(x))), then LN(x + Dropout(Mlp(x))): the original BERT's (paper, figure 7a).

    Shapes and communication are Block's.
    """

    def forward(
        self,
        x: Tensor,
        at: Tensor | None = None,
        first_key: Tensor | None = None,
        real: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        attended = self.attention(x, first_key, real, cache)
        x = self.attention_norm(x + F.dropout(attended, self.dropout, self.training))
        if at is not None:
            x = x.flatten(0, 1)[at]  # [n, hidden]
        return self.mlp_norm(x + F.dropout(self.mlp(x), self.dropout, self.training))


def layers_of(
    design: Design, *, causal: bool, tp: Axis, rng: RngStreams, overlap: bool, dtype: torch.dtype
) -> nn.ModuleList:
    """All layers of a model; causal: left-to-right attention."""
    form = PostNormBlock if design.layernorm == "post" else Block

    def layer() -> Block:
        attention = SelfAttention(
            design.hidden_size,
            design.num_heads,
            tp=tp,
            rng=rng,
            init_std=design.init_std,
            projection_init_std=design.projection_init_std,
            bias=design.bias,
            dropout=design.attention_dropout,
            overlap=overlap,
            dtype=dtype,
            causal=causal,
        )
        mlp = Mlp(
            design.hidden_size,
            design.ffn_hidden_size,
            tp=tp,
            init_std=design.init_std,
            projection_init_std=design.projection_init_std,
            bias=design.bias,
            gelu=design.gelu,
            overlap=overlap,
            dtype=dtype,
        )
        return form(norm_of(design, tp, dtype), attention, norm_of(design, tp, dtype), mlp, design.dropout)

    return nn.ModuleList(layer() for _ in range(design.num_layers))


def norm_of(design: Design, tp: Axis, dtype: torch.dtype) -> LayerNorm:
    """A LayerNorm as the layers have them."""
    return LayerNorm(design.hidden_size, tp=tp, eps=design.layernorm_eps, bias=design.bias, dtype=dtype)

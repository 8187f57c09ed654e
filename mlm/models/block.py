"""One transformer layer, in its two forms, and how all layers of a model are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlm.models.attention import SelfAttention
from mlm.models.cache import LayerCache
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


@dataclass(frozen=True, kw_only=True)
class LayerDesign:
    """What all layers of a model have in common.

    init_std: of weights; projection_init_std: of those whose product is added to the residual stream.
    gelu: tanh or erf. causal: left-to-right attention. layernorm: pre (Block) or post (PostNormBlock).
    """

    hidden_size: int
    num_heads: int
    ffn_hidden_size: int
    bias: bool
    gelu: str
    layernorm_eps: float
    dropout: float
    attention_dropout: float
    init_std: float
    projection_init_std: float
    causal: bool = True
    layernorm: str = "pre"

    def layers(
        self, number: int, *, tp: Axis, rng: RngStreams, overlap: bool, dtype: torch.dtype
    ) -> nn.ModuleList:
        """So many layers of this design."""
        return nn.ModuleList(self._layer(tp, rng, overlap, dtype) for _ in range(number))

    def norm(self, tp: Axis, dtype: torch.dtype) -> LayerNorm:
        """A LayerNorm as the layers have them."""
        return LayerNorm(self.hidden_size, tp=tp, eps=self.layernorm_eps, bias=self.bias, dtype=dtype)

    def _layer(self, tp: Axis, rng: RngStreams, overlap: bool, dtype: torch.dtype) -> Block:
        attention = SelfAttention(
            self.hidden_size,
            self.num_heads,
            tp=tp,
            rng=rng,
            init_std=self.init_std,
            projection_init_std=self.projection_init_std,
            bias=self.bias,
            dropout=self.attention_dropout,
            overlap=overlap,
            dtype=dtype,
            causal=self.causal,
        )
        mlp = Mlp(
            self.hidden_size,
            self.ffn_hidden_size,
            tp=tp,
            init_std=self.init_std,
            projection_init_std=self.projection_init_std,
            bias=self.bias,
            gelu=self.gelu,
            overlap=overlap,
            dtype=dtype,
        )
        form: Callable[..., Block] = PostNormBlock if self.layernorm == "post" else Block
        return form(self.norm(tp, dtype), attention, self.norm(tp, dtype), mlp, self.dropout)

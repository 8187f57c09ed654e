"""One transformer layer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from mlm.models.attention import SelfAttention
from mlm.models.cache import LayerCache
from mlm.models.mlp import Mlp
from mlm.parallel.norm import LayerNorm


class Block(nn.Module):
    """x + Dropout(Attention(LN(x))), then x + Dropout(Mlp(LN(x))): LayerNorm at the input of each sub-layer.

    Residuals, dropout and LayerNorm are computed on every tp rank alike (paper, section 3): the layer
    communicates only inside attention and MLP, twice forward and twice backward.

    Shapes: [batch, seq, hidden] -> [batch, seq, hidden], equal on all tp ranks; with at [n], numbers of
    positions in the flattened [batch * seq], [n, hidden]: only these go through the MLP. first_key
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
        cache: LayerCache | None = None,
    ) -> Tensor:
        attended = self.attention(self.attention_norm(x), first_key, cache)
        x = x + F.dropout(attended, self.dropout, self.training)
        if at is not None:
            x = x.flatten(0, 1)[at]  # [n, hidden]
        return x + F.dropout(self.mlp(self.mlp_norm(x)), self.dropout, self.training)

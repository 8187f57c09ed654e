"""Multi-head self-attention with whole heads on each tensor-parallel rank (paper, section 3, figure 3b)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlm.models.blocked_attention import blocked_causal_attention
from mlm.models.cache import LayerCache
from mlm.parallel.linear import ColumnParallelLinear, RowParallelLinear
from mlm.parallel.mesh import Axis
from mlm.parallel.rng import RngStreams


class SelfAttention(nn.Module):
    """Y = sum_i softmax(Q_i K_i^T / sqrt(d)) V_i B_i + b, the sum over heads being split over tp.

    The projection to Q, K, V is split by columns, so that each rank computes its heads/tp heads alone; the
    output projection B is split by rows, so that g sums the heads' contributions: one all-reduce forward,
    one (f) backward.

    causal: no query sees keys to its right (GPT-2); otherwise each sees all of them (BERT).
    first_key: position of the first key that each query of a causal layer attends to, where it is not 0.
    real: of a layer that is not causal, which keys are tokens and not padding; None: all.
    cache: where keys and values are kept while text is generated, and those of the tokens before x are found.

    Shapes: [batch, seq, hidden] -> [batch, seq, hidden], equal on all tp ranks; first_key, real [batch, seq].
    Parameters: qkv weight [3*hidden/tp, hidden] and bias, projection weight [hidden, hidden/tp] and bias.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        tp: Axis,
        rng: RngStreams,
        init_std: float,
        projection_init_std: float,
        bias: bool,
        dropout: float,
        overlap: bool,
        dtype: torch.dtype,
        causal: bool = True,
    ):
        super().__init__()
        self.causal = causal
        self.head_dim = hidden_size // num_heads
        self.dropout = dropout
        self.rng = rng
        # Rows ordered [heads, 3, head_dim]: a plain split on dim 0 gives every rank whole heads at any tp,
        # so checkpoints need no knowledge of the degree they were written at.
        self.qkv = ColumnParallelLinear(
            hidden_size, 3 * hidden_size, tp=tp, init_std=init_std, bias=bias, overlap=overlap, dtype=dtype
        )
        self.projection = RowParallelLinear(
            hidden_size, hidden_size, tp=tp, init_std=projection_init_std, bias=bias, dtype=dtype
        )

    def forward(
        self,
        x: Tensor,
        first_key: Tensor | None = None,
        real: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        batch, seq, _ = x.shape
        qkv = self.qkv(x)  # [batch, seq, heads/tp * 3 * head_dim]
        qkv = qkv.view(batch, seq, -1, 3, self.head_dim)  # [batch, seq, heads/tp, 3, head_dim]
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)  # 3 x [batch, heads/tp, seq, head_dim]
        if cache is None:
            y = self._attend(q, k, v, first_key, real)  # [batch, heads/tp, seq, head_dim]
        else:
            y = cache.attend(q, k, v, lambda q, k, v: self._attend(q, k, v, first_key, real))
        return self.projection(y.transpose(1, 2).reshape(batch, seq, -1))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, first_key: Tensor | None, real: Tensor | None
    ) -> Tensor:
        # scaled_dot_product_attention drops by the argument alone, in eval mode too.
        dropout = self.dropout if self.training else 0.0
        if dropout > 0.0:
            # These probabilities exist on this rank only: its own random numbers.
            with self.rng.tensor_parallel_region():
                if not self.causal:
                    return full_attention(q, k, v, real, dropout)
                return fused_causal_attention(q, k, v, first_key, dropout)
        if not self.causal:
            return full_attention(q, k, v, real)
        if q.device.type == "cpu":
            return blocked_causal_attention(q, k, v, first_key)
        return fused_causal_attention(q, k, v, first_key)


def fused_causal_attention(
    q: Tensor, k: Tensor, v: Tensor, first_key: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """torch's own attention, in which query i sees the keys first_key[i] to i.

    Shapes: q, k, v [batch, heads, seq, head_dim] -> the same; first_key [batch, seq].
    """
    if first_key is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    position = torch.arange(q.shape[2], device=q.device)
    seen = (position <= position[:, None]) & (position >= first_key[:, :, None])  # [batch, seq, seq]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None], dropout_p=dropout)


def full_attention(
    q: Tensor, k: Tensor, v: Tensor, real: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """torch's own attention, in which every query sees every key that is real.

    Shapes: q, k, v [batch, heads, seq, head_dim] -> the same; real bool [batch, seq], None: all.
    """
    seen = None if real is None else real[:, None, None]  # [batch, 1, 1, seq]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout)

"""The MLP: first product split by columns, second by rows (paper, section 3, figure 3a)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlm.parallel.linear import ColumnParallelLinear, RowParallelLinear
from mlm.parallel.mesh import Axis


class Mlp(nn.Module):
    """Z = GeLU(X A) B, A = [A_1 .. A_t] by columns, B = [B_1; ..; B_t] by rows:

        Z = sum_i GeLU(X A_i) B_i          t = tp.size

    GeLU is not linear, so A could not be split by rows without a sum before it; by columns each rank
    applies it to its own columns. One all-reduce forward (g), one backward (f).

    Shapes: [batch, seq, hidden] -> [batch, seq, hidden], equal on all tp ranks; between the two products
    [batch, seq, ffn/tp].
    """

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        *,
        tp: Axis,
        init_std: float,
        projection_init_std: float,
        bias: bool,
        gelu: str,
        overlap: bool,
        dtype: torch.dtype,
    ):
        super().__init__()
        self.approximate = "tanh" if gelu == "tanh" else "none"
        self.expand = ColumnParallelLinear(
            hidden_size, ffn_hidden_size, tp=tp, init_std=init_std, bias=bias, overlap=overlap, dtype=dtype
        )
        self.contract = RowParallelLinear(
            ffn_hidden_size, hidden_size, tp=tp, init_std=projection_init_std, bias=bias, dtype=dtype
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(F.gelu(self.expand(x), approximate=self.approximate))

"""LayerNorm, replicated on every tensor-parallel rank (paper, section 3: duplicated, not communicated)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import Declaration, DeclaringModule


class LayerNorm(DeclaringModule):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension.

    Every rank computes it on the same input and, f standing behind it, receives the same full gradient:
    its parameters stay equal on all ranks without being communicated.

    Shapes: [..., hidden] -> the same. Parameters: weight, bias [hidden], replicated.
    """

    def __init__(
        self, hidden_size: int, *, tp: Axis, eps: float, bias: bool = True, dtype: torch.dtype = torch.float32
    ):
        super().__init__(tp)
        self.eps = eps
        self.weight = self.declare("weight", Declaration((hidden_size,), init_constant=1.0), dtype)
        self.bias = self.declare("bias", Declaration((hidden_size,)), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps:g}, bias={self.bias is not None}"

"""Linear layers split by columns and by rows (paper, section 3, figure 3), or on every rank whole."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from mlm.parallel.collectives import all_reduced, reduce_from_tp
from mlm.parallel.device import autocast_dtype
from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import Declaration, DeclaringModule
from mlm.parallel.waiting import in_collective


class ColumnParallelLinear(DeclaringModule):
    """Y = X A + b with A split by columns over the tensor-parallel axis (paper, section 3, figure 3a).

        [Y_1 .. Y_t] = X [A_1 .. A_t] + [b_1 .. b_t]          t = tp.size

    Rank i computes Y_i = X A_i + b_i alone: nothing is communicated forward. X reaches all A_i, so its
    gradient is the sum over ranks of dY_i A_i^T: f of the paper, whose backward all-reduces it.

    Shapes: input [..., in], equal on all ranks -> output [..., out/tp].
    Parameters: weight [out/tp, in], split on dim 0; bias [out/tp], split on dim 0.
    Raises ConfigError when out_features is not a multiple of tp.size.

    overlap: issue the all-reduce before the product for the weight's gradient and wait for it after.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tp: Axis,
        init_std: float,
        bias: bool = True,
        overlap: bool = True,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(tp)
        self.overlap = overlap
        self.weight = self.declare(
            "weight", Declaration((out_features, in_features), split_dim=0, init_std=init_std), dtype
        )
        self.bias = self.declare("bias", Declaration((out_features,), split_dim=0), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.tp.size == 1:
            return F.linear(x, self.weight, self.bias)
        return _ColumnParallelProduct.apply(x, self.weight, self.bias, self.tp, self.overlap)

    def extra_repr(self) -> str:
        return _describe_split(self, "columns")


class RowParallelLinear(DeclaringModule):
    """Y = X A + b with A split by rows over the tensor-parallel axis (paper, section 3, figure 3a).

                       [A_1]
        Y = [X_1..X_t] [ : ] + b  =  sum_i X_i A_i + b          t = tp.size
                       [A_t]

    Rank i holds X_i and A_i; g sums the partial products once, and b, which every rank holds, is added
    after the sum: added before it, it would count t times.

    Shapes: input [..., in/tp] -> output [..., out], equal on all ranks of the axis.
    Parameters: weight [out, in/tp], split on dim 1; bias [out], replicated.
    Raises ConfigError when in_features is not a multiple of tp.size.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tp: Axis,
        init_std: float,
        bias: bool = True,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(tp)
        self.weight = self.declare(
            "weight", Declaration((out_features, in_features), split_dim=1, init_std=init_std), dtype
        )
        self.bias = self.declare("bias", Declaration((out_features,)), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.tp.size == 1:
            return F.linear(x, self.weight, self.bias)
        y = reduce_from_tp(F.linear(x, self.weight), self.tp)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def extra_repr(self) -> str:
        return _describe_split(self, "rows")


class ReplicatedLinear(DeclaringModule):
    """Y = X A + b on every rank alike, for layers too small to be split.

    Its input and the gradient of its output are equal on all ranks, and so is its parameters' gradient:
    nothing is communicated. Shapes: [..., in] -> [..., out]. Parameters: weight [out, in], bias [out].
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tp: Axis,
        init_std: float,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(tp)
        self.weight = self.declare(
            "weight", Declaration((out_features, in_features), init_std=init_std), dtype
        )
        self.bias = self.declare("bias", Declaration((out_features,)), dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        rows, columns = self.weight.shape
        return f"weight=[{rows}, {columns}], on every rank"


class _ColumnParallelProduct(torch.autograd.Function):
    """x W^T + b with f's all-reduce folded into the backward, where it overlaps with a product.

    Dtypes are chosen by hand: autocast would cast the weight anew in forward and backward, and its cache
    would remember a copy that was made where gradients are off.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tp: Axis, overlap: bool) -> Tensor:
        dtype = autocast_dtype(x)
        x, weight_cast = x.to(dtype), weight.to(dtype)
        ctx.save_for_backward(x, weight_cast)
        ctx.tp, ctx.overlap, ctx.weight_dtype = tp, overlap, weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        return F.linear(x, weight_cast, None if bias is None else bias.to(dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        grad_x = (grad @ weight).contiguous()  # [..., in], this rank's share of the sum
        work = None
        if ctx.overlap and not torch.compiler.is_compiling():
            # grad_x is nobody else's yet, so it may be reduced in place; it lives until wait().
            work = dist.all_reduce(grad_x, group=ctx.tp.group, async_op=True)
        else:
            grad_x = all_reduced(grad_x, ctx.tp)
        rows = grad.reshape(-1, grad.shape[-1])  # [batch*seq, out/tp]
        grad_weight = (rows.t() @ x.reshape(-1, x.shape[-1])).to(ctx.weight_dtype)  # [out/tp, in]
        grad_bias = None if ctx.bias_dtype is None else rows.sum(0, dtype=ctx.bias_dtype)
        if work is not None:
            with in_collective("all-reduce", ctx.tp):
                work.wait()
        return grad_x, grad_weight, grad_bias, None, None


def _describe_split(layer: ColumnParallelLinear | RowParallelLinear, what: str) -> str:
    rows, columns = layer.declarations["weight"].shape
    return (
        f"weight={list(layer.weight.shape)} of [{rows}, {columns}], "
        f"{what} {layer.tp.rank + 1}/{layer.tp.size}, bias={layer.bias is not None}"
    )

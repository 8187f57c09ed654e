"""The collectives of the paper: f and g, and the few others that the layers need."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mlm.parallel.mesh import Axis
from mlm.parallel.waiting import in_collective

# torch 2.13 renamed the collectives that work on one tensor and warns about the old names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class _CopyToTp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: Axis) -> Tensor:
        ctx.tp = tp
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return all_reduced(grad, ctx.tp), None


class _ReduceFromTp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: Axis) -> Tensor:
        return all_reduced(x, tp)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def copy_to_tp(x: Tensor, tp: Axis) -> Tensor:
    """f of the paper (section 3): identity; its backward is the all-reduce (sum) over tp.

    Stands where a replicated activation enters a column-split layer: each rank's gradient is only its
    columns' share. Shapes: any -> the same. The backward moves x.numel() elements.
    """
    return x if tp.size == 1 else _CopyToTp.apply(x, tp)


def reduce_from_tp(x: Tensor, tp: Axis) -> Tensor:
    """g of the paper (section 3): all-reduce (sum) over tp; its backward is the identity.

    Shapes: any -> the same. Moves x.numel() elements once per call; nothing when tp.size == 1.
    """
    return x if tp.size == 1 else _ReduceFromTp.apply(x, tp)


def all_reduced(x: Tensor, axis: Axis, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
    """The reduction of x over the axis, in a tensor of its own; no autograd.

    x is cloned first: autograd may still need it, and a collective wants contiguous memory that it owns.
    """
    if axis.size == 1:
        return x
    reduced = x.clone(memory_format=torch.contiguous_format)
    with in_collective("all-reduce", axis):
        dist.all_reduce(reduced, op=op, group=axis.group)
    return reduced


def all_gathered(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """The axis's parts of x side by side along dim, on every rank; no autograd.

    Shapes: [..., n, ...] -> [..., n * axis.size, ...] at dim. Moves x.numel() * (axis.size - 1) elements.
    """
    if axis.size == 1:
        return x
    x = x.contiguous()
    parts = x.new_empty((axis.size * x.shape[0], *x.shape[1:])) if x.dim() else x.new_empty(axis.size)
    with in_collective("all-gather", axis):
        _all_gather(parts, x, group=axis.group)
    return torch.cat(parts.chunk(axis.size), dim=dim)


def broadcast_bytes(message: bytes | None, axis: Axis) -> bytes:
    """The message of the axis's first rank, on every rank; what the others give is not looked at.

    Moves its length and itself, as CPU tensors: gloo waits for them without keeping a device busy.
    """
    if axis.size == 1:
        assert message is not None, "the only rank has the message"
        return message
    first = dist.get_global_rank(axis.group, 0) if axis.group is not None else 0
    length = torch.tensor([len(message or b"")])
    with in_collective("broadcast", axis):
        dist.broadcast(length, first, group=axis.group)
    content = torch.zeros(int(length.item()), dtype=torch.uint8)
    if axis.rank == 0 and message:
        content = torch.frombuffer(bytearray(message), dtype=torch.uint8)
    if len(content):
        with in_collective("broadcast", axis):
            dist.broadcast(content, first, group=axis.group)
    return bytes(content.tolist())

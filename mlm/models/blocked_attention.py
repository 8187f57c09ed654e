"""Causal attention for CPUs: plain products over blocks of queries, faster there than the fused kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

# Queries per block. A block of b queries ending at position e multiplies only the e keys it may see, so
# about half of the full square is computed; smaller blocks save more of it but make thinner products.
BLOCK = 128


def blocked_causal_attention(q: Tensor, k: Tensor, v: Tensor, first_key: Tensor | None = None) -> Tensor:
    """softmax(q k^T / sqrt(head_dim) + causal mask) v, the value of scaled_dot_product_attention.

    first_key: query i sees the keys first_key[i] to i; None: from 0.

    Shapes: q, k, v [batch, heads, seq, head_dim] -> the same; first_key [batch, seq]. Keeps the
    probabilities for the backward, batch * heads * seq^2 / 2 elements: cheap at the lengths a CPU trains on.
    """
    return _BlockedCausalAttention.apply(q, k, v, first_key)


class _BlockedCausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, first_key: Tensor | None) -> Tensor:
        shape = q.shape
        scale = 1.0 / math.sqrt(shape[-1])
        q, k, v = (t.reshape(-1, *shape[-2:]) for t in (q * scale, k, v))  # [batch*heads, seq, head_dim]
        seq = shape[-2]
        out = torch.empty_like(q)
        saved = []
        for start in range(0, seq, BLOCK):
            end = min(start + BLOCK, seq)
            scores = torch.bmm(q[:, start:end], k[:, :end].transpose(1, 2))  # [batch*heads, block, end]
            scores[:, :, start:] += _above_diagonal(end - start, scores)
            if first_key is not None:
                before = torch.arange(end) < first_key[:, start:end, None]  # [batch, block, end]
                # A view: heads of a sample have the same documents.
                scores.view(shape[0], shape[1], -1, end).masked_fill_(before[:, None], float("-inf"))
            probabilities = torch.softmax(scores, dim=-1)
            out[:, start:end] = torch.bmm(probabilities, v[:, :end])
            saved.append(probabilities)
        ctx.save_for_backward(q, k, v, *saved)
        ctx.scale, ctx.shape = scale, shape
        return out.view(shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, *saved = ctx.saved_tensors
        grad = grad.reshape(q.shape)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for index, probabilities in enumerate(saved):
            start = index * BLOCK
            end = start + probabilities.shape[1]
            grad_out = grad[:, start:end]
            _add_bmm(grad_v[:, :end], probabilities.transpose(1, 2), grad_out)
            grad_p = torch.bmm(grad_out, v[:, :end].transpose(1, 2))
            grad_s = torch.ops.aten._softmax_backward_data(grad_p, probabilities, -1, probabilities.dtype)
            grad_q[:, start:end] = torch.bmm(grad_s, k[:, :end])
            _add_bmm(grad_k[:, :end], grad_s.transpose(1, 2), q[:, start:end])
        return (grad_q * ctx.scale).view(ctx.shape), grad_k.view(ctx.shape), grad_v.view(ctx.shape), None


def _add_bmm(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, in place. torch's FLOP counter knows baddbmm, but not its in-place name."""
    torch.baddbmm(total, a, b, out=total)


def _above_diagonal(size: int, like: Tensor) -> Tensor:
    return torch.full((size, size), float("-inf"), dtype=like.dtype).triu_(1)

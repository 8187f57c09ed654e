"""Cross entropy on logits that stay split along the vocabulary (paper, section 3).

With logits z_v, target y and the sum running over the real vocabulary,

    nll = ln sum_v exp(z_v - m) - (z_y - m),        m = max_v z_v,

each rank contributes its own maximum, its own sum and, if it owns y, z_y. What travels is three values per
token, never the b*s*V logits. Padded columns take no probability and get no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mlm.parallel.collectives import all_reduced
from mlm.parallel.device import autocast_dtype, without_autocast
from mlm.parallel.mesh import Axis

# Logits of one chunk of the fused loss: on a CPU small enough to stay in cache between its passes, on an
# accelerator large enough for full-speed products. Only speed and memory depend on it.
CPU_CHUNK_BYTES = 32 * 2**20
ACCELERATOR_CHUNK_BYTES = 512 * 2**20


def vocab_parallel_cross_entropy(logits: Tensor, targets: Tensor, tp: Axis, vocab_size: int) -> Tensor:
    """Negative log likelihood of each target in nats.

    Shapes: logits [..., padded_vocab/tp], targets [...] (ids below vocab_size) -> [...], equal on all ranks.
    Computed in at least fp32. Forward moves 3 values per token over tp; the backward,
    softmax(z) - onehot(y), moves nothing.
    """
    return _VocabParallelCrossEntropy.apply(logits, targets, tp, vocab_size)


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    token_weights: Tensor,
    tp: Axis,
    vocab_size: int,
    chunk_bytes: int | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """sum over tokens of token_weight * nll(hidden weight^T + bias, target): output layer and loss in one.

    Works through chunks of tokens and takes each chunk's gradient while its logits are still there, so that
    the full [tokens, vocab/tp] logits never exist. f of the paper stands in front of the output layer: the
    backward all-reduces the gradient of hidden over tp.

    Shapes: hidden [batch, seq, hidden], weight [padded_vocab/tp, hidden], bias [padded_vocab/tp], targets
    and token_weights [batch, seq] -> a scalar, equal on all ranks. Moves 3 values per token forward and
    batch*seq*hidden elements backward. chunk_bytes: size of a chunk's logits; None: by kind of device.
    """
    chunk_bytes = chunk_bytes or default_chunk_bytes(hidden.device)
    loss, _ = _LinearCrossEntropy.apply(
        hidden, weight, bias, targets, token_weights, tp, vocab_size, chunk_bytes, False
    )
    return loss


def linear_cross_entropy_and_hits(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    token_weights: Tensor,
    tp: Axis,
    vocab_size: int,
    chunk_bytes: int | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """linear_cross_entropy, and the sum of token_weight over tokens whose target has the largest logit.

    The second is a scalar without gradient, equal on all ranks. Moves 2 further values per token forward.
    """
    chunk_bytes = chunk_bytes or default_chunk_bytes(hidden.device)
    return _LinearCrossEntropy.apply(
        hidden, weight, bias, targets, token_weights, tp, vocab_size, chunk_bytes, True
    )


def default_chunk_bytes(device: torch.device) -> int:
    """Size of the logits of one chunk that suits a kind of device."""
    return CPU_CHUNK_BYTES if device.type == "cpu" else ACCELERATOR_CHUNK_BYTES


def real_columns(columns: int, tp: Axis, vocab_size: int) -> int:
    """How many of this rank's columns, the first ones, are tokens and not padding."""
    return min(max(vocab_size - tp.rank * columns, 0), columns)


def vocab_parallel_argmax(logits: Tensor, tp: Axis, vocab_size: int) -> Tensor:
    """The id of each token's largest logit, the lowest of equals as torch.argmax has it; never a padded one.

    Shapes: logits [tokens, padded_vocab/tp] -> [tokens] int64, equal on all ranks. Moves 2 values per token.
    """
    columns = logits.shape[1]
    real = real_columns(columns, tp, vocab_size)
    if real:
        maximum, column = logits[:, :real].max(dim=1)
    else:  # a rank of nothing but padding
        maximum = logits.new_full(logits.shape[:1], float("-inf"))
        column = torch.zeros_like(maximum, dtype=torch.int64)
    if tp.size == 1:
        return column
    best = all_reduced(maximum, tp, dist.ReduceOp.MAX)
    candidate = torch.where(maximum == best, column + tp.rank * columns, vocab_size)
    return all_reduced(candidate, tp, dist.ReduceOp.MIN)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, tp: Axis, vocab_size: int) -> Tensor:
        z = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True).flatten(0, -2)
        owned = OwnedTargets(targets.flatten(), z.shape[1], tp)
        nll, sum_exp = nll_and_exponentials(z, owned, tp, vocab_size)
        ctx.save_for_backward(z.div_(sum_exp.unsqueeze(1)))  # [tokens, padded_vocab/tp], probabilities
        ctx.owned, ctx.shape, ctx.dtype = owned, logits.shape, logits.dtype
        return nll.view(targets.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (probabilities,) = ctx.saved_tensors
        scale = grad.flatten()
        grad_z = probabilities * scale.unsqueeze(1)
        ctx.owned.add_at_targets_(grad_z, -scale)
        return grad_z.view(ctx.shape).to(ctx.dtype), None, None, None


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        token_weights: Tensor,
        tp: Axis,
        vocab_size: int,
        chunk_bytes: int,
        count_hits: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = autocast_dtype(hidden)
        wide = torch.promote_types(dtype, torch.float32)
        x = hidden.flatten(0, -2).to(dtype)  # [tokens, hidden]
        w = weight.to(dtype)  # [padded_vocab/tp, hidden]
        y, scale = targets.flatten(), token_weights.flatten().to(wide)  # [tokens]
        tokens, columns = x.shape[0], w.shape[0]
        chunk = max(1, min(tokens, chunk_bytes // (columns * wide.itemsize)))

        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        grad_x = torch.empty_like(x) if wanted else None
        grad_w = torch.zeros(w.shape, dtype=wide, device=w.device) if wanted else None
        grad_bias = torch.zeros(columns, dtype=wide, device=w.device) if wanted and bias is not None else None
        total, hits = (torch.zeros((), dtype=wide, device=x.device) for _ in range(2))
        with without_autocast(x.device):
            for start in range(0, tokens, chunk):
                rows = slice(start, start + chunk)
                z = (x[rows] @ w.t()).to(wide)  # [chunk, padded_vocab/tp]
                if bias is not None:
                    z += bias.to(wide)
                if count_hits:
                    hits += (vocab_parallel_argmax(z, tp, vocab_size) == y[rows]).to(wide) @ scale[rows]
                owned = OwnedTargets(y[rows], columns, tp)
                nll, sum_exp = nll_and_exponentials(z, owned, tp, vocab_size)
                total += nll @ scale[rows]
                if grad_x is None or grad_w is None:
                    continue
                # d nll / d z = softmax(z) - onehot(y), times the token's weight
                z.mul_((scale[rows] / sum_exp).unsqueeze(1))
                owned.add_at_targets_(z, -scale[rows])
                if grad_bias is not None:
                    grad_bias += z.sum(0)
                grad_z = z.to(dtype)
                torch.mm(grad_z, w, out=grad_x[rows])
                if dtype == wide:
                    torch.addmm(grad_w, grad_z.t(), x[rows], out=grad_w)
                else:
                    grad_w += grad_z.t() @ x[rows]
        ctx.save_for_backward(grad_x, grad_w, grad_bias)
        ctx.tp, ctx.shape = tp, hidden.shape
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(hits)
        return total, hits

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, grad_w, grad_bias = ctx.saved_tensors
        grad_x = all_reduced(grad_x * grad.to(grad_x.dtype), ctx.tp).view(ctx.shape)
        grad_b = None if grad_bias is None else (grad_bias * grad).to(ctx.dtypes[2])
        return grad_x.to(ctx.dtypes[0]), (grad_w * grad).to(ctx.dtypes[1]), grad_b, *[None] * 6


class OwnedTargets:
    """Which targets of a chunk fall into this rank's columns, and where."""

    def __init__(self, targets: Tensor, columns: int, tp: Axis):
        local = targets - tp.rank * columns
        self.foreign = (local < 0) | (local >= columns)  # [tokens]
        self.column = local.masked_fill(self.foreign, 0).unsqueeze(1)  # [tokens, 1]

    def pick(self, z: Tensor) -> Tensor:
        """z at each token's target, 0 where another rank owns it. [tokens, columns] -> [tokens]"""
        return z.gather(1, self.column).squeeze(1).masked_fill(self.foreign, 0.0)

    def add_at_targets_(self, z: Tensor, values: Tensor) -> None:
        """Add values [tokens] to z [tokens, columns] in place at the targets this rank owns."""
        z.scatter_add_(1, self.column, values.masked_fill(self.foreign, 0.0).unsqueeze(1))


def nll_and_exponentials(z: Tensor, owned: OwnedTargets, tp: Axis, vocab_size: int) -> tuple[Tensor, Tensor]:
    """nll [tokens] and sum of exponentials [tokens]; z [tokens, columns] becomes exp(z - max) in place."""
    columns = z.shape[1]
    real = real_columns(columns, tp, vocab_size)
    if real < columns:
        z[:, real:] = float("-inf")
    maximum = all_reduced(z.amax(dim=1), tp, dist.ReduceOp.MAX)  # [tokens]
    z.sub_(maximum.unsqueeze(1))
    target_logit = owned.pick(z)
    z.exp_()
    if tp.size == 1:
        sum_exp = z.sum(dim=1)
    else:
        sum_exp, target_logit = all_reduced(torch.stack((z.sum(dim=1), target_logit)), tp).unbind(0)
    return sum_exp.log() - target_logit, sum_exp

"""The global gradient norm and clipping, over a model that is split and partly replicated."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlm.parallel.collectives import all_reduced
from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import named_declarations


@torch.no_grad()
def global_grad_norm(model: nn.Module, tp: Axis) -> Tensor:
    """L2 norm of the full model's gradient, a float64 scalar, bit-equal on all tp ranks.

    Split parameters are summed over tp; of replicated ones, whose gradients all ranks hold alike, each rank
    adds its share of 1/tp: what is not finite on any rank makes the norm of all ranks not finite. Squares are
    summed in float64: 1e30 in fp32 does not overflow. Moves one element.
    """
    split: list[Tensor] = []
    replicated: list[Tensor] = []
    for _, parameter, declaration in named_declarations(model):
        if parameter.grad is not None:
            (replicated if declaration.split_dim is None else split).append(parameter.grad)
    return all_reduced(_sum_of_squares(split) + _sum_of_squares(replicated) / tp.size, tp).sqrt()


def _sum_of_squares(tensors: list[Tensor]) -> Tensor:
    if not tensors:
        return torch.zeros((), dtype=torch.float64)
    norms = torch._foreach_norm(tensors, 2, dtype=torch.float64)
    return torch.stack(norms).square().sum()


@torch.no_grad()
def clip_by_norm_(
    model: nn.Module, norm: Tensor, limit: float | None, loss_scale: Tensor | None = None
) -> None:
    """Scale all gradients by min(1, limit / norm), in place and without asking the host; limit None: by 1.

    loss_scale: gradients are this much too large and are divided by it too; norm is that of the true ones.
    """
    if limit is None and loss_scale is None:
        return
    factor = 1.0 if limit is None else (limit / (norm + 1e-6)).clamp(max=1.0)
    if loss_scale is not None:
        factor = factor / loss_scale.double()
    assert isinstance(factor, Tensor), "one of the two is there"
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    torch._foreach_mul_(grads, factor.to(grads[0].dtype))

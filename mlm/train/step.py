"""One optimizer step, without a single wait of the host for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from torch import Tensor, nn

from mlm.optim.adamw import AdamW
from mlm.parallel.data_parallel import accumulate_only, gradients_travel
from mlm.parallel.grads import clip_by_norm_, global_grad_norm
from mlm.parallel.mesh import Mesh
from mlm.train.guard import Guard
from mlm.train.objectives.base import MicroBatch
from mlm.train.trace import BACKWARD, FORWARD, OPTIMIZER


def unnamed(_name: str) -> AbstractContextManager[object]:
    """The range of a step that nobody records."""
    return nullcontext()


class StepResult(NamedTuple):
    """What a step leaves on the device."""

    loss_share: Tensor
    """This dp rank's part of the loss, a scalar: parts add up over dp."""
    grad_norm: Tensor
    """Of the full gradient, before clipping; a scalar."""
    figures: Tensor | None
    """This dp rank's parts of the objective's figures, float64 [figures]; None without any."""


def train_step(
    model: nn.Module,
    optimizer: AdamW,
    micro_batches: Sequence[MicroBatch],
    *,
    lr: float,
    clip_grad_norm: float | None,
    mesh: Mesh,
    autocast: Callable[[], AbstractContextManager[object]],
    guard: Guard | None = None,
    span: Callable[[str], AbstractContextManager[object]] = unnamed,
) -> StepResult:
    """Forward, backward, clip and update.

    The loss of a step is a mean over the global batch, whatever micro batches and dp ranks its samples were
    spread over: each micro batch weighs its own by what is in all of them.

    micro_batches: at least one, each a forward and backward pass; gradients travel over dp during the last
    one only. guard: decides whether the update is applied and scales the loss; None: it is, whatever the
    gradients are. span: names parts of the step in a trace.
    """
    optimizer.zero_grad()
    scale = None if guard is None else guard.loss_scale
    # DDP averages gradients over dp; the loss is a sum over it. The scale goes into the weights too, from
    # which the first gradients are made: scaled afterwards, they would have been rounded to zero in fp16.
    factor = mesh.dp.size if scale is None else mesh.dp.size * scale.double()
    share: Tensor | None = None
    figures: Tensor | None = None
    for index, micro_batch in enumerate(micro_batches):
        is_last = index == len(micro_batches) - 1
        with accumulate_only(model, last_micro_batch=is_last):
            with span(FORWARD), autocast():
                loss, about = micro_batch.loss(model, factor)
            with span(BACKWARD), gradients_travel(mesh.dp, now=is_last):
                loss.backward()
        share = _added(share, loss.detach() / mesh.dp.size)
        figures = figures if about is None else _added(figures, about / factor)
    assert share is not None, "a step has at least one micro batch"
    with span(OPTIMIZER):
        norm = global_grad_norm(model, mesh.tp)
        if scale is not None:
            share, norm = share / scale, norm / scale
        clip_by_norm_(model, norm, clip_grad_norm, scale)
        optimizer.step(lr, None if guard is None else guard.judge(share, norm))
    return StepResult(share, norm, figures)


def _added(sum_so_far: Tensor | None, part: Tensor) -> Tensor:
    return part if sum_so_far is None else sum_so_far + part

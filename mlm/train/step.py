"""One optimizer step, without a single wait of the host for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from mlm.optim.adamw import AdamW
from mlm.parallel.data_parallel import accumulate_only, gradients_travel
from mlm.parallel.grads import clip_by_norm_, global_grad_norm
from mlm.parallel.mesh import Mesh
from mlm.train.guard import Guard
from mlm.train.packing import WHOLE, Packing
from mlm.train.trace import BACKWARD, FORWARD, OPTIMIZER


def unnamed(_name: str) -> AbstractContextManager[object]:
    """The range of a step that nobody records."""
    return nullcontext()


def train_step(
    model: nn.Module,
    optimizer: AdamW,
    micro_batches: list[Tensor],
    *,
    lr: float,
    clip_grad_norm: float | None,
    global_batch_tokens: int,
    mesh: Mesh,
    autocast: Callable[[], AbstractContextManager[object]],
    packing: Sequence[Packing] | None = None,
    guard: Guard | None = None,
    span: Callable[[str], AbstractContextManager[object]] = unnamed,
) -> tuple[Tensor, Tensor]:
    """Forward, backward, clip and update; returns (this rank's share of the loss, gradient norm).

    The loss of a step is the sum of nll over all scored tokens of the global batch divided by their number,
    global_batch_tokens, whatever micro batches and dp ranks they were spread over. The first result is this
    dp rank's share of that sum, a scalar on the device; shares add up over dp. The norm is the full
    gradient's, before clipping.

    micro_batches: ids [micro_batch, seq + 1], each a forward and backward pass; gradients travel over dp
    during the last one only. packing: the documents in each; None: every sample is one stretch of text.
    guard: decides whether the update is applied and scales the loss; None: it is, whatever the gradients are.
    span: names parts of the step in a trace.
    """
    optimizer.zero_grad()
    # DDP averages gradients over dp; the loss is a sum over it.
    weight = mesh.dp.size / global_batch_tokens
    scale = None if guard is None else guard.loss_scale
    share: Tensor | None = None
    for index, ids in enumerate(micro_batches):
        inputs, targets = ids[:, :-1], ids[:, 1:]  # [micro_batch, seq]
        token_weights = torch.full(targets.shape, weight, dtype=torch.float64, device=ids.device)
        if scale is not None:
            # Into the tokens' weights, from which the first gradients are made: scaled afterwards, they would
            # have been rounded to zero in fp16 already.
            token_weights *= scale
        is_last = index == len(micro_batches) - 1
        with accumulate_only(model, last_micro_batch=is_last):
            documents = WHOLE if packing is None else packing[index]
            with span(FORWARD), autocast():
                loss = model(inputs, targets, token_weights, documents.positions, documents.first_key)
            with span(BACKWARD), gradients_travel(mesh.dp, now=is_last):
                loss.backward()
        part = loss.detach() / mesh.dp.size
        share = part if share is None else share + part
    assert share is not None, "a step has at least one micro batch"
    with span(OPTIMIZER):
        norm = global_grad_norm(model, mesh.tp)
        if scale is not None:
            share, norm = share / scale, norm / scale
        clip_by_norm_(model, norm, clip_grad_norm, scale)
        optimizer.step(lr, None if guard is None else guard.judge(share, norm))
    return share, norm

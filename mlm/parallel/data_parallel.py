"""Data parallelism: torch's DistributedDataParallel over the dp axis."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mlm.parallel.mesh import Axis
from mlm.parallel.waiting import in_collective


def replicate(model: nn.Module, dp: Axis, bucket_mb: float = 25.0) -> nn.Module:
    """The model, its gradients averaged over dp during the backward; the model itself when dp.size == 1.

    Initial values are already equal on all ranks, so none are sent. DDP divides by dp.size: a loss meant
    as a sum over ranks is multiplied by dp.size first.
    """
    if dp.size == 1:
        return model
    return DistributedDataParallel(
        model,
        process_group=dp.group,
        bucket_cap_mb=bucket_mb,
        gradient_as_bucket_view=True,
        init_sync=False,
    )


def gradients_travel(dp: Axis, *, now: bool) -> AbstractContextManager[None]:
    """Context of a backward pass; now: it ends when DDP has reduced the gradients over dp."""
    return in_collective("all-reduce of the gradients", dp) if now and dp.size > 1 else nullcontext()


def accumulate_only(model: nn.Module, last_micro_batch: bool) -> AbstractContextManager[None]:
    """Context of one micro batch: gradients travel over dp in the last one of a step only."""
    if isinstance(model, DistributedDataParallel) and not last_micro_batch:
        return model.no_sync()
    return nullcontext()

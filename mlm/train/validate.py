"""Sums over held-out samples, independent of batch and layout; what is summed is the objective's affair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.data.blend import Blend
from mlm.parallel.collectives import all_reduced
from mlm.parallel.mesh import Mesh


@dataclass(frozen=True)
class HeldOut:
    """The held-out samples of one dataset."""

    weight: float
    """Its part of the loss; those of a run sum to 1."""
    samples: int
    score: Callable[[NDArray[np.int64], int], Tensor]
    """score(numbers, count): sums over those of the samples numbers that are below count, float64 [k].

    Numbers at or past count, and past the last sample, are asked for as well: every rank runs the same number
    of passes of one size.
    """


@torch.no_grad()
def validate(
    model: nn.Module,
    held_out: Sequence[HeldOut],
    *,
    samples: int | None,
    micro_batch_size: int,
    mesh: Mesh,
) -> list[list[float]]:
    """Each dataset's sums over its first samples, [datasets][k]; `samples` in all (None: every one).

    They are shared out by weight, at least one for each dataset, and dealt to the dp ranks. model: the bare
    module, not its data-parallel wrapper. Dropout is off and no random number is drawn, so training goes on
    as if nothing had happened.
    """
    was_training = model.training
    model.eval()
    sums = []
    for each, limit in zip(held_out, _shared_out(held_out, samples), strict=True):
        count = min(limit, each.samples)
        total: Tensor | None = None
        for start in range(0, count, micro_batch_size * mesh.dp.size):
            first = start + mesh.dp.rank * micro_batch_size
            part = each.score(np.arange(first, first + micro_batch_size), count)
            total = part if total is None else total + part
        assert total is not None, "a validation split has a sample"
        sums.append(all_reduced(total, mesh.dp).tolist())
    model.train(was_training)
    return sums


def _shared_out(held_out: Sequence[HeldOut], samples: int | None) -> list[int]:
    if samples is None:
        return [each.samples for each in held_out]
    if len(held_out) == 1:
        return [samples]
    return [max(1, count) for count in Blend([each.weight for each in held_out]).counts(samples)]

"""Whether a step's update is applied: decided on the device and by all ranks alike; no host waits for it.

A step whose loss or gradients are not finite must not touch the parameters. With fp16 it may only mean that
the loss scale is too high for now; otherwise something is wrong, and after too many such steps in a row no
further step changes anything, so that the parameters are still those that the trouble began with when the
host learns of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor

from mlm.checkpoint.state import TrainingState
from mlm.parallel.collectives import all_reduced
from mlm.parallel.mesh import Axis


class Verdict(IntEnum):
    """What became of a step."""

    UPDATED = 0
    """The parameters have changed."""
    OVERFLOW = 1
    """fp16's gradients were too large: skipped, and the loss scale halved."""
    NOT_FINITE = 2
    """The loss or the gradients were not finite, which no scale explains: skipped."""
    HALTED = 3
    """Skipped, because too many steps before it were not finite: the run is ending."""


@dataclass(frozen=True)
class Scaling:
    """fp16's dynamic loss scale.

    It starts at `initial`, doubles after growth_steps updates in a row and is halved, never below `floor`,
    when gradients overflow.
    """

    initial: float
    growth_steps: int
    floor: float


class Guard:
    """The state of those decisions on the device.

    loss_scale: what the loss is multiplied by in the next step, a scalar; None without scaling.
    verdict: of the latest step, a Verdict as a float scalar. good_steps: updates in a row since the scale
    last changed or a step was skipped, a scalar.
    """

    def __init__(
        self,
        dp: Axis,
        device: torch.device,
        *,
        max_bad_steps: int,
        scaling: Scaling | None = None,
        loss_scale: float | None = None,
        good_steps: int = 0,
    ):
        """max_bad_steps: in a row that are borne. loss_scale, good_steps: what a checkpoint has of them."""
        self._dp, self._max_bad_steps, self._scaling = dp, max_bad_steps, scaling
        self._bad_in_a_row = torch.zeros((), device=device)
        self.verdict = torch.zeros((), device=device)
        self.good_steps = torch.full((), good_steps, dtype=torch.int64, device=device)
        self.loss_scale: Tensor | None = None
        if scaling is not None:
            begin = scaling.initial if loss_scale is None else max(loss_scale, scaling.floor)
            self.loss_scale = torch.full((), begin, dtype=torch.float32, device=device)

    @torch.no_grad()
    def judge(self, loss_share: Tensor, norm: Tensor) -> Tensor:
        """1 where this step's update is to be skipped and 0 where it is applied, an fp32 scalar.

        loss_share: this dp rank's; norm: the true gradient's, equal on all tp ranks. Moves 2 elements over
        dp: what is not finite on one rank is so for all. Moves the scale on to the next step's.
        """
        flags = torch.stack((~loss_share.isfinite(), ~norm.isfinite())).float()
        loss_bad, norm_bad = all_reduced(flags, self._dp, dist.ReduceOp.MAX).bool().unbind()
        halted = self._bad_in_a_row > self._max_bad_steps
        overflow = self._overflow(loss_bad, norm_bad)
        bad = (loss_bad | norm_bad) & ~overflow
        skip = loss_bad | norm_bad | halted
        self._move_scale(overflow, skip)
        # An overflow says nothing about whether the trouble is over.
        in_a_row = torch.where(bad, self._bad_in_a_row + 1, 0)
        self._bad_in_a_row = torch.where(halted | overflow, self._bad_in_a_row, in_a_row)
        verdict = torch.where(bad, float(Verdict.NOT_FINITE), overflow * float(Verdict.OVERFLOW))
        self.verdict = torch.where(halted, float(Verdict.HALTED), verdict)
        return skip.float()

    def settled(self, state: TrainingState, verdicts: Sequence[Verdict]) -> TrainingState:
        """The state with what became of its latest steps, which counted as updates; waits for the device."""
        skipped = sum(verdict is not Verdict.UPDATED for verdict in verdicts)
        return replace(
            state,
            updates=state.updates - skipped,
            skipped_steps=state.skipped_steps + skipped,
            loss_scale=None if self.loss_scale is None else self.loss_scale.item(),
            good_steps=0 if self.loss_scale is None else int(self.good_steps.item()),
        )

    def _overflow(self, loss_bad: Tensor, norm_bad: Tensor) -> Tensor:
        """Whether a lower scale may help: the forward pass, which knows no scale, was finite."""
        if self._scaling is None or self.loss_scale is None:
            return torch.zeros_like(loss_bad)
        return norm_bad & ~loss_bad & (self.loss_scale > self._scaling.floor)

    def _move_scale(self, overflow: Tensor, skip: Tensor) -> None:
        if self._scaling is None or self.loss_scale is None:
            return
        good = torch.where(skip, 0, self.good_steps + 1)
        grows = good >= self._scaling.growth_steps
        # Doubled for ever it would itself be infinite one day.
        doubled = torch.where((self.loss_scale * 2).isfinite(), self.loss_scale * 2, self.loss_scale)
        scale = torch.where(grows, doubled, self.loss_scale)
        lowered = (self.loss_scale * 0.5).clamp(min=self._scaling.floor)
        self.loss_scale = torch.where(overflow, lowered, scale)
        self.good_steps = torch.where(grows, 0, good)

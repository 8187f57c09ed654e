"""What a run reports: one record per step, throughput by windows of steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlm.parallel.collectives import all_reduced
from mlm.parallel.device import synchronise
from mlm.parallel.mesh import Mesh
from mlm.train.guard import Verdict


@dataclass(frozen=True)
class Speed:
    """Throughput of the whole job over one window of steps."""

    steps: int
    step_time_s: float
    """Mean wall time of a step."""
    tokens_per_s: float
    """Global batch tokens per second, all data-parallel ranks together."""
    throughput_pflops: float
    """Model FLOPs of the whole job per second, in 10^15 (never launch time: the window ends synchronised)."""
    mfu: float | None
    """Model FLOPs: their share of the devices' dense peak in the run's precision; None: peak unknown."""
    hfu: float | None
    """The same of hardware FLOPs, which count recomputation."""


@dataclass(frozen=True)
class StepRecord:
    """One step as metrics.jsonl has it."""

    step: int
    loss: float
    """Nats per token, mean over the global batch."""
    lr: float
    grad_norm: float
    """Norm of the full gradient before clipping."""
    verdict: Verdict = Verdict.UPDATED
    """Whether the parameters have changed, and why not."""
    loss_scale: float | None = None
    """fp16's, of this step; None in other precisions."""
    figures: tuple[float, ...] = ()
    """The objective's, means over the global batch in its order."""


class Window:
    """Steps between two moments at which the host waits for the device.

    Losses stay on the device until the window closes; closing it costs one synchronisation and one
    reduction over dp, however many steps it holds.
    """

    def __init__(
        self,
        mesh: Mesh,
        device: torch.device,
        *,
        tokens: int,
        flops: float,
        hardware_flops: float,
        peak: float | None,
    ):
        """tokens and FLOPs: of one step of the whole job; peak: FLOP/s of one device, None when unknown."""
        self.mesh, self.device = mesh, device
        self.tokens, self.flops, self.hardware_flops, self.peak = tokens, flops, hardware_flops, peak
        self._pending: list[tuple[int, float]] = []
        self._on_device: list[tuple[Tensor, Tensor, Tensor | None, Tensor | None]] = []
        self._figures: list[Tensor] = []
        self.restart_clock()

    def restart_clock(self) -> None:
        """Leave what happened since the last step (validation, saving) out of the throughput."""
        synchronise(self.device)
        self._started = time.perf_counter()

    def add(
        self,
        step: int,
        lr: float,
        loss_share: Tensor,
        grad_norm: Tensor,
        verdict: Tensor | None = None,
        loss_scale: Tensor | None = None,
        figures: Tensor | None = None,
    ) -> None:
        """verdict: a Verdict on the device, None where every step updates; loss_scale: fp16's.

        figures: this dp rank's part of the objective's, [figures]; None, in all steps, where it has none.
        """
        self._pending.append((step, lr))
        if figures is not None:
            self._figures.append(figures)
        self._on_device.append((loss_share, grad_norm, verdict, loss_scale))

    def __len__(self) -> int:
        return len(self._pending)

    def close(self, timed: bool = True) -> tuple[list[StepRecord], Speed | None]:
        """The window's records and speed; the next window begins.

        timed: false where something else than training took part of the time; the speed is then None.
        """
        synchronise(self.device)
        now = time.perf_counter()
        count = len(self._pending)
        step_time = (now - self._started) / count
        self._started = now
        shares, *rest = zip(*self._on_device, strict=True)
        parts = torch.stack(shares).double()[:, None]  # [steps, 1 + figures]
        if self._figures:
            parts = torch.cat((parts, torch.stack(self._figures)), dim=1)
        means = all_reduced(parts, self.mesh.dp).tolist()
        norms, verdicts, scales = (_values(column, count) for column in rest)
        records = [
            StepRecord(step, loss, lr, norm, Verdict(round(verdict or 0)), scale, tuple(figures))
            for (step, lr), (loss, *figures), norm, verdict, scale in zip(
                self._pending, means, norms, verdicts, scales, strict=True
            )
        ]
        self._pending.clear()
        self._on_device.clear()
        self._figures.clear()
        if not timed:
            return records, None
        return records, Speed(
            steps=count,
            step_time_s=step_time,
            tokens_per_s=self.tokens / step_time,
            throughput_pflops=self.flops / step_time / 1e15,
            mfu=self._utilisation(self.flops / step_time),
            hfu=self._utilisation(self.hardware_flops / step_time),
        )

    def _utilisation(self, flops_per_s: float) -> float | None:
        return None if self.peak is None else flops_per_s / (self.peak * self.mesh.world_size)


def _values(scalars: tuple[Tensor | None, ...], count: int) -> list[Any]:
    """Their values in one transfer from the device; Nones where there are none."""
    there = [scalar for scalar in scalars if scalar is not None]
    return torch.stack(there).tolist() if len(there) == count else [None] * count


def readable_flops(pflops: float) -> str:
    """A throughput as PFLOP/s and, where that is a tiny number, on a scale one can read."""
    if pflops >= 0.1:
        return f"{pflops:.2f} PFLOP/s"
    for factor, unit in ((1e3, "TFLOP/s"), (1e6, "GFLOP/s"), (1e9, "MFLOP/s")):
        if pflops * factor >= 1 or unit == "MFLOP/s":
            return f"{pflops:.2e} PFLOP/s ({pflops * factor:.1f} {unit})"
    raise AssertionError("the last unit takes everything")


def readable_time(seconds: float) -> str:
    """A duration as 45s, 3m12s, 5h07m or 12d04h."""
    s = round(seconds)
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02d}s"
    if s < 86400:
        return f"{s // 3600}h{s % 3600 // 60:02d}m"
    return f"{s // 86400}d{s % 86400 // 3600:02d}h"

"""Whether a run ends before its last step, decided by all ranks in the same step and waited for by none."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from mlm.launch.signals import Signals
from mlm.parallel.mesh import Axis, Mesh
from mlm.parallel.waiting import in_collective

LEAVE_S = 5.0
"""Seconds that the processes take to end after the save."""


class TimeLimit:
    """train.max_hours, as the first rank's clock has it.

    hours: from `started`, time.time() of the command. The time that is left must hold the step that is about
    to be decided on, one more, a save and the way out; a step counts as the longest since the second, with
    its pauses.
    """

    def __init__(self, hours: float, started: float, *, clock: Callable[[], float] = time.time):
        self.hours, self._clock = hours, clock
        self._ends_at = started + 3600 * hours
        self._longest_step_s = 0.0
        self._last: float | None = None
        self._steps = 0

    def is_over(self, save_s: float) -> bool:
        """Whether the step that now begins has to be the last; save_s: seconds that a save may take."""
        now = self._clock()
        if self._last is not None:
            self._steps += 1
            if self._steps > 1:  # the first one loads, compiles and allocates
                self._longest_step_s = max(self._longest_step_s, now - self._last)
        self._last = now
        return now + 2 * self._longest_step_s + save_s + LEAVE_S > self._ends_at


class Stop:
    """The agreement to stop; built and called by all ranks together.

    reason: why the run ends after this step, once that is agreed: SIGTERM, or train.max_hours=2.
    """

    def __init__(self, mesh: Mesh, heard: Signals, limit: TimeLimit | None, *, timeout_s: float):
        """heard: by this process. limit: the run's; only the first rank's counts."""
        self.reason: str | None = None
        self._heard, self._limit = heard, limit if mesh.rank == 0 else None
        self._hours = None if limit is None else limit.hours
        self._world = Axis("world", mesh.rank, mesh.world_size)
        self._wishes = torch.zeros(2, dtype=torch.int32)  # [signal, time is over]
        self._work: dist.Work | None = None
        self._group: dist.ProcessGroup | None = None
        if mesh.world_size > 1:
            # Of its own, on the CPU: neither the device nor the order of training's collectives is touched.
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))

    def ask(self, save_s: float | None) -> None:
        """Say at the beginning of a step what this rank wishes; the answers travel while it computes.

        save_s: seconds that a save may take; None: time is not asked about, only what was heard.
        """
        over = self._limit is not None and save_s is not None and self._limit.is_over(save_s)
        self._wishes[0], self._wishes[1] = self._heard.first or 0, over
        if self._group is not None:
            # Any rank's wish is everybody's.
            self._work = dist.all_reduce(self._wishes, op=dist.ReduceOp.MAX, group=self._group, async_op=True)

    def answered(self) -> bool:
        """Whether the step that now ends is the last: the same on every rank."""
        if self._work is not None:
            with in_collective("agreement whether to stop", self._world):
                self._work.wait()
            self._work = None
        number, over = self._wishes.tolist()
        if number:
            self.reason = signal.Signals(number).name
        elif over:
            self.reason = f"train.max_hours={self._hours:g}"
        return self.reason is not None

    def agreed(self) -> bool:
        """Ask where no step is, wait for the answer, and leave time out of it."""
        self.ask(None)
        return self.answered()

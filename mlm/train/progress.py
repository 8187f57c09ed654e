"""What a person sees while training: a line at each log interval, and in a terminal a bar below."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from mlm.train.log import logger
from mlm.train.metrics import Speed, StepRecord, readable_flops, readable_time


class ProgressDisplay:
    """Shows steps as they are logged. Metrics are kept elsewhere; this is for eyes only."""

    def __init__(self, total_steps: int, said: Callable[[Sequence[float]], str], enabled: bool):
        """said: a step's figures in words."""
        self.total_steps, self.said = total_steps, said
        self.enabled = enabled
        self._bar: Progress | None = None
        if enabled and sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[left]}"),
                console=Console(file=sys.stdout),
                # Twice a second is enough for eyes and costs the training nothing.
                refresh_per_second=2,
                transient=True,
            )
            self._task = self._bar.add_task("", total=total_steps, left="")
            self._bar.start()

    def advance(self, step: int) -> None:
        """A step has been issued; moves the bar and waits for nothing."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step)

    def step(self, record: StepRecord, speed: Speed | None) -> None:
        """A window has closed: its last step and its speed, None when it was profiled."""
        if not self.enabled:
            return
        width = len(str(self.total_steps))
        figures = f"{said}  " if (said := self.said(record.figures)) else ""
        line = (
            f"step {record.step:>{width}}/{self.total_steps}  loss {record.loss:.4f}  {figures}"
            f"lr {record.lr:.2e}  norm {record.grad_norm:.2f}  "
        )
        if speed is None:
            logger.info(f"{line}profiled, not timed")
            return
        left = f"{readable_time((self.total_steps - record.step) * speed.step_time_s)} left"
        mfu = "" if speed.mfu is None else f"  MFU {speed.mfu:.1%}"
        rate = f"{speed.tokens_per_s:,.0f} tokens/s  {readable_flops(speed.throughput_pflops)}"
        logger.info(f"{line}{rate}{mfu}  {left}")
        if self._bar is not None:
            self._bar.update(self._task, completed=record.step, left=left)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

"""What the person at the console sees while training: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from mlm.train.log import logger
from mlm.train.metrics import Speed, StepRecord, readable_flops, readable_time


class ProgressDisplay:
    """Shows steps as they are logged. Metrics are kept elsewhere; this is for eyes only."""

    def __init__(self, total_steps: int, enabled: bool):
        self.total_steps = total_steps
        self.enabled = enabled
        self._bar: Progress | None = None
        if enabled and sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("step {task.completed:>6}/{task.total}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[what]}"),
                console=Console(file=sys.stdout),
            )
            self._task = self._bar.add_task("", total=total_steps, what="")
            self._bar.start()

    def step(self, record: StepRecord, speed: Speed) -> None:
        if not self.enabled:
            return
        left = (self.total_steps - record.step) * speed.step_time_s
        mfu = "" if speed.mfu is None else f"  MFU {speed.mfu:.1%}"
        what = (
            f"loss {record.loss:.4f}  lr {record.lr:.2e}  norm {record.grad_norm:.2f}  "
            f"{speed.tokens_per_s:,.0f} tokens/s  {readable_flops(speed.throughput_pflops)}{mfu}  "
            f"{readable_time(left)} left"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=record.step, what=what)
        else:
            logger.info(f"step {record.step:>6}/{self.total_steps}  {what}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

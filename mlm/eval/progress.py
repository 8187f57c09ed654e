"""What a person sees while tasks are scored: a line now and then, and in a terminal a bar."""

from __future__ import annotations

import logging
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from mlm.train.metrics import readable_time

LINE_INTERVAL_S = 15.0
"""Seconds between lines where there is no terminal; the first comes sooner."""
_FIRST_LINE_S = 3.0


class EvalProgress:
    """Tokens done of tokens to do, over all tasks of an evaluation, with speed and time left."""

    def __init__(self, enabled: bool):
        self._enabled = enabled
        self._began = time.perf_counter()
        self._next_line = self._began + _FIRST_LINE_S
        self._bar: Progress | None = None
        if enabled and sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[speed]}"),
                console=Console(file=sys.stdout),
                refresh_per_second=2,
                transient=True,
            )
            self._task = self._bar.add_task("", total=None, speed="")
            self._bar.start()

    def __call__(self, what: str, done: int, total: int) -> None:
        """what: the task at work. done, total: tokens over the whole evaluation."""
        if not self._enabled or done == 0:
            return
        now = time.perf_counter()
        rate = done / (now - self._began)
        speed = f"{rate:,.0f} tokens/s  {readable_time((total - done) / rate)} left"
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done, total=total, speed=speed)
        elif now >= self._next_line:
            logging.getLogger("mlm").info(f"{what}  {done:,}/{total:,} tokens ({done / total:.0%})  {speed}")
            self._next_line = now + LINE_INTERVAL_S

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

"""How far a long pass over text has come: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 30.0


class TextProgress:
    """Shows bytes of input done of all (None: unknown), text per second and the time left, on stderr.

    done: bytes of files as they lie; text: bytes of them decompressed, which the rate counts.
    """

    def __init__(self, what: str, total: int | None, done: int = 0):
        self._what, self._total = what, total
        self._begun_s = self._line_s = time.monotonic()
        self._done_before = done
        self._text = 0
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]:.1f} MB/s  {task.fields[note]}"),
                TimeRemainingColumn(compact=True),
                console=Console(file=sys.stderr),
                transient=True,
            )
            self._task = self._bar.add_task(what, total=total, completed=done, rate=0.0, note="")

    def __enter__(self) -> TextProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, text: int, note: str) -> None:
        """So much is done; text: bytes of text of this step; note: what else there is to say."""
        self._text += text
        now_s = time.monotonic()
        rate = self._text / max(now_s - self._begun_s, 1e-3) / 1e6
        if self._bar is not None:
            self._bar.update(self._task, completed=done, rate=rate, note=note)
        elif now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            print(self._line(done, rate, note, now_s - self._begun_s), file=sys.stderr, flush=True)

    def _line(self, done: int, rate: float, note: str, elapsed_s: float) -> str:
        if not self._total or done <= self._done_before:
            return f"{self._what}: {self._text / 1e6:,.0f} MB at {rate:.1f} MB/s, {note}"
        left_s = elapsed_s * (self._total - done) / (done - self._done_before)
        share = f"{done / self._total:.0%} of {self._total / 1e6:,.0f} MB"
        return f"{self._what}: {share}, {rate:.1f} MB/s, {note}, {time_text(left_s)} left"


def time_text(seconds: float) -> str:
    """For people: 3.2 s, 4 min 5 s, 2 h 7 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size_text(size: int) -> str:
    """For people: 19 bytes, 3.2 kB, 25.0 MB, 4.1 GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size} bytes"

"""The signals that ask a run to stop, as launcher and workers hear them."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Ask for an orderly end: Ctrl-C, kill, a notice of what is coming (Slurm's --signal)."""
STOP = (*ASKED, signal.SIGHUP)
"""The same, and a closed terminal."""
NOTICES = (signal.SIGUSR1,)
"""Never taken for a second, impatient one: schedulers send SIGUSR1 and, minutes later, SIGTERM."""
SAME_S = 0.2
"""Signals this close together are one: `timeout` sends two at once, and a hand is not as fast."""

Heard = Callable[[signal.Signals], None]


class Signals:
    """What has been heard: the first signal asks for an orderly end, a second one to leave at once.

    first and second: as far as they have come; first_at: time.monotonic() of the first. on_first and
    on_second are called by the handler, between two bytecodes of the main thread; they must not print
    through buffers.
    """

    def __init__(self, on_first: Heard | None = None, on_second: Heard | None = None):
        self.first: signal.Signals | None = None
        self.second: signal.Signals | None = None
        self.first_at = 0.0
        self._on_first, self._on_second = on_first, on_second
        self._insisted_at = 0.0

    def hear(self, number: int, frame: FrameType | None = None) -> None:
        """The handler."""
        heard, now = signal.Signals(number), time.monotonic()
        if self.first is None:
            self.first, self.first_at = heard, now
            self._insisted_at = 0.0 if heard in NOTICES else now
            if self._on_first is not None:
                self._on_first(heard)
            return
        if heard in NOTICES or self.second is not None:
            return
        if not self._insisted_at:
            # After a notice only: whoever sends it need not know that the notice came.
            self._insisted_at = now
        elif now - self._insisted_at > SAME_S:
            self.second = heard
            if self._on_second is not None:
                self._on_second(heard)

    def listen(self, numbers: Sequence[signal.Signals] = STOP) -> None:
        """Hear from here on, in the main thread; what this process was told to ignore (nohup) it ignores."""
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.hear)


def ignore() -> None:
    """Hear nothing any more: only clearing up is left, which no impatience must cut short."""
    for number in (*STOP, signal.SIGQUIT):
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """For processes that this thread starts meanwhile signals wait, until these call let_through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Deliver what was held back for this process before it could listen."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)

"""One run of a sweep as a process of its own: started, heard, ended with us, and asked why it failed."""

from __future__ import annotations

import collections
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mlm.failures import read_failures
from mlm.launch.refusal import EXIT_REFUSED
from mlm.launch.stopped import EXIT_SAVED
from mlm.launch.verdict import is_consequence
from mlm.studies.record import FAILED, FINISHED, REFUSED, UNFINISHED, failed

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REMEMBERED_LINES = 200
_COMMAND = "mlm-train: "


@dataclass
class Listener:
    """Signals to this process, passed on to the run that is going on; the first one ends the sweep."""

    first: signal.Signals | None = None
    child: subprocess.Popen[bytes] | None = None

    def hear(self, number: int, frame: FrameType | None) -> None:
        self.first = self.first or signal.Signals(number)
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                self.child.send_signal(number)


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    """Hear SIGINT, SIGTERM and SIGHUP as long as the sweep goes on."""
    listener = Listener()
    before = {number: signal.signal(number, listener.hear) for number in _HEARD}
    try:
        yield listener
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Ended:
    """How a run's command ended. code: its exit code, negative for a signal that killed it."""

    code: int
    last_words: tuple[str, ...]
    """The last lines of its standard error."""


def run_child(arguments: Sequence[str], listener: Listener, held: int) -> Ended:
    """Run mlm-train with the arguments and wait for its end; what it says is passed on as it says it.

    It leads a process group of its own: a terminal's Ctrl-C would else reach it twice, once from us.
    held: a descriptor it inherits.
    """
    command = [sys.executable, "-m", "mlm.cli.train", *arguments]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0, pass_fds=[held]
    )
    listener.child = child
    if listener.first is not None:
        # It came between two runs, when there was nobody to pass it on to.
        child.send_signal(listener.first)
    words: collections.deque[str] = collections.deque(maxlen=_REMEMBERED_LINES)
    reader = threading.Thread(target=_pass_on, args=(child, words), daemon=True)
    reader.start()
    try:
        code = child.wait()
    finally:
        listener.child = None
    # Workers that outlive their launcher may hold the pipe; what they say is no longer waited for.
    reader.join(timeout=5)
    return Ended(code, tuple(words))


def _pass_on(child: subprocess.Popen[bytes], words: collections.deque[str]) -> None:
    assert child.stderr is not None
    for line in child.stderr:
        text = line.decode(errors="replace")
        words.append(text.rstrip("\n"))
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def verdict(ended: Ended, run_dir: Path, *, finished: bool) -> tuple[str, str | None]:
    """The status of a run that has ended and, unless it finished, its first cause in a sentence.

    finished: whether the directory holds the summary of the run that was meant.
    """
    code = ended.code
    if code == 0:
        if finished:
            return FINISHED, None
        return UNFINISHED, "ended without an error, but its directory holds no summary of this configuration"
    if code == EXIT_REFUSED:
        return REFUSED, _refusal(ended.last_words) or "was refused before it started"
    if code == EXIT_SAVED:
        return UNFINISHED, "stopped in order, and saved"
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        name = signal.Signals(number).name
        return UNFINISHED, f"killed by {name}" if code < 0 else f"stopped by {name}"
    # The earliest failure that a rank recorded and that no other one explains.
    cause = next((failure for failure in read_failures(run_dir) if not is_consequence(failure)), None)
    if cause is not None:
        return failed(cause)
    return FAILED, _last_word(ended.last_words) or f"exit code {code}"


def _last_word(lines: Sequence[str]) -> str | None:
    said = [line.removeprefix(_COMMAND) for line in lines if line.startswith(_COMMAND)]
    return next((line for line in reversed(said) if not line.startswith("warning")), None)


def _refusal(lines: Sequence[str]) -> str | None:
    """The first problem of a refusal's table: `  where  wrong`, its remedy beside it or below."""
    start = next((n for n, line in enumerate(lines) if line.endswith("nothing was started")), None)
    if start is None:
        return _last_word(lines)
    rows = lines[start + 1 : start + 3]
    remedy = [row for row in rows[1:] if row.strip().startswith("->")]
    return " ".join(" ".join([*rows[:1], *remedy]).split()) or None

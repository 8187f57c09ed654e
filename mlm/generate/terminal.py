"""Prompts typed one after the other: read by the first rank, told to all, answered as they are written."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from mlm.data.bad_data import BadData
from mlm.generate.output import Output, note
from mlm.generate.prompts import first_ids
from mlm.generate.writer import Writer
from mlm.parallel.collectives import broadcast_bytes
from mlm.parallel.mesh import Axis

MARK = "> "
STILL_HERE_S = 10.0
"""Seconds between signs of life to the other ranks while nobody types: no collective may take for ever."""


def converse(writer: Writer, tp: Axis, *, echo: bool = False) -> None:
    """Answer every line until the end of the input (Ctrl-D); collective."""
    is_first = tp.rank == 0
    if is_first:
        note("each line is a prompt; Ctrl-D ends")
    for number, prompt in enumerate(_lines(tp)):
        try:
            tokens = len(first_ids(writer.tokenizer, prompt))
        except BadData as error:
            if is_first:
                note(str(error))
            continue
        context = writer.engine.seq_length
        if tokens > context and not writer.limits.slides:
            if is_first:
                note(f"the prompt has {tokens:,} tokens, and the model sees {context:,}: shorten it")
            continue
        output = Output(
            sys.stdout.buffer, [prompt], 1, as_json=False, echo=echo, enabled=is_first, first=number
        )
        for written in writer.write([prompt], first=number, tell=output.piece):
            output.text(written)
            if is_first and written.finish_reason != "length":
                note(f"({output.summary()})")


def _lines(tp: Axis) -> Iterator[str]:
    """What is typed, on every rank; the first asks for it."""
    typed = _Typed(sys.stdin) if tp.rank == 0 else None
    while True:
        if typed is not None:
            typed.ask()
        while True:
            message = broadcast_bytes(None if typed is None else typed.message(), tp)
            if message != _NOTHING_YET:
                break
        if message == _END:
            return
        yield message[1:].decode()


_NOTHING_YET, _END, _LINE = b"", b"e", b"l"


class _Typed:
    """Lines of a terminal, read by a thread so that waiting for them can be interrupted."""

    def __init__(self, terminal: TextIO):
        self._terminal = terminal
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._wanted = threading.Semaphore(0)
        threading.Thread(target=self._read, name="terminal", daemon=True).start()

    def ask(self) -> None:
        print(MARK, end="", file=sys.stderr, flush=True)
        self._wanted.release()

    def message(self) -> bytes:
        """A line, the end, or after a while nothing yet."""
        try:
            return self._lines.get(timeout=STILL_HERE_S)
        except queue.Empty:
            return _NOTHING_YET

    def _read(self) -> None:
        while True:
            self._wanted.acquire()
            line = self._terminal.readline()
            if not line:
                print(file=sys.stderr, flush=True)  # the prompt's mark stands alone on its line
                self._lines.put(_END)
                return
            self._lines.put(_LINE + line.removesuffix("\n").encode())

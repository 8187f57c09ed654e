"""Texts to standard output or a file, in order; everything that is said about them to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from mlm.files import whole_file
from mlm.generate.writer import Written

_REASONS = {
    "eod": "the document ended",
    "stop": "a stop string came",
    "length": "max_new_tokens were made",
    "context": "the model's context was full (slide=true goes on)",
}
"""finish_reason -> why, in words."""


def note(line: str) -> None:
    """Say something about the texts, where they are not."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def opened(out: Path | None) -> Iterator[BinaryIO]:
    """The file, which is there whole or not at all, or standard output."""
    if out is None:
        yield sys.stdout.buffer
    else:
        with whole_file(out, durable=False) as file:
            yield file


class Output:
    """Writes texts by the numbers of their prompts and samples, whatever the order in which they finish.

    as_json: a JSON object a line; otherwise the texts themselves, and a line on standard error before each
    of several. echo: prompts in front of them. first: number of the first prompt. enabled: false on all
    ranks but the first, which write nothing.
    """

    def __init__(
        self,
        file: BinaryIO,
        prompts: Sequence[str],
        samples: int,
        *,
        as_json: bool,
        echo: bool = False,
        enabled: bool = True,
        first: int = 0,
    ):
        self._file, self._prompts, self._samples = file, prompts, samples
        self._as_json, self._echo, self._enabled = as_json, echo, enabled
        self._waiting: dict[tuple[int, int], Written] = {}
        self._first = first
        self._next = (first, 0)
        self._has_begun = False
        self._is_closed = False
        self._reasons: Counter[str] = Counter()
        self.tokens = 0

    def piece(self, piece: str) -> None:
        """Show a part of the only text as it becomes certain."""
        if self._as_json:
            return
        self._begin(self._first)
        self._put(piece)

    def text(self, written: Written) -> None:
        """Write a finished text when its turn comes."""
        self._waiting[written.prompt, written.sample] = written
        self._reasons[written.finish_reason] += 1
        self.tokens += written.new_tokens
        while self._next in self._waiting:
            self._write(self._waiting.pop(self._next))
            prompt, sample = self._next
            self._next = (prompt, sample + 1) if sample + 1 < self._samples else (prompt + 1, 0)

    def summary(self) -> str:
        """How many texts there are and why they ended."""
        count = self._reasons.total()
        if count == 1:
            return f"ended because {_REASONS[next(iter(self._reasons))]}"
        each = ", ".join(f"{_REASONS[reason]}: {number:,}" for reason, number in self._reasons.most_common())
        return f"{count:,} texts ({each})"

    def _write(self, written: Written) -> None:
        if self._as_json:
            prompt = self._prompts[written.prompt - self._first]
            record = {"prompt": prompt} | {"text": written.text} | _facts(written)
            self._put(json.dumps(record, ensure_ascii=False) + "\n")
            return
        if not self._has_begun:
            if self._enabled and len(self._prompts) * self._samples > 1:
                note(f"--- sample {written.sample + 1} of {self._samples}")
            self._begin(written.prompt)
            self._put(written.text)
        self._put("\n")
        self._has_begun = False

    def _begin(self, prompt: int) -> None:
        if not self._has_begun and self._echo:
            self._put(self._prompts[prompt - self._first])
        self._has_begun = True

    def _put(self, text: str) -> None:
        if not self._enabled or self._is_closed:
            return
        is_terminal = self._file is sys.stdout.buffer and sys.stdout.isatty()
        try:
            self._file.write((printable(text) if is_terminal else text).encode(errors="replace"))
            self._file.flush()
        except BrokenPipeError:
            # `| head` has read enough. The other ranks know nothing of it, so the rest is made unseen.
            self._is_closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(text: str) -> str:
    """The text without control characters: what a model draws must not reprogram the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _facts(written: Written) -> dict[str, str | int]:
    facts: dict[str, str | int] = asdict(written)
    del facts["text"]
    return {"prompt_number": facts.pop("prompt")} | facts

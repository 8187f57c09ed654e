"""A bounded, repeatable sample of a text of any length, for training a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

# Long enough that few words are cut apart, short enough that one document cannot fill the sample.
STRETCH_CHARACTERS = 2_000
_MASK = (1 << 64) - 1


class Sample:
    """Stretches of the texts added, evenly from all of them, never more than `limit` characters in all.

    A text is cut into stretches at line ends where it has them. Whether a stretch is kept depends on its
    number alone: while all fit, all are kept; each time they no longer do, about a tenth of them go.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.read_characters = 0
        self.characters = 0
        self._kept: list[tuple[int, str]] = []
        self._number = 0
        self._below = 1 << 64

    def add(self, text: str) -> None:
        self.read_characters += len(text)
        for stretch in stretches(text):
            rank = _mixed(self._number)
            self._number += 1
            if rank >= self._below:
                continue
            self._kept.append((rank, stretch))
            self.characters += len(stretch)
            while self.characters > self.limit:
                self._below -= self._below // 10
                self._kept = [kept for kept in self._kept if kept[0] < self._below]
                self.characters = sum(len(kept) for _, kept in self._kept)

    def __iter__(self) -> Iterator[str]:
        """The stretches kept, in the order in which they came."""
        return (stretch for _, stretch in self._kept)

    @property
    def is_all(self) -> bool:
        """Whether nothing was left out."""
        return self._below == 1 << 64


def stretches(text: str) -> Iterator[str]:
    """Pieces that join to the text, each of at most STRETCH_CHARACTERS, ending after a newline if it can."""
    start = 0
    while start < len(text):
        stop = start + STRETCH_CHARACTERS
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or stop
        yield text[start:stop]
        start = stop


def _mixed(number: int) -> int:
    """64 bits that look random for numbers in a row (the finaliser of splitmix64)."""
    mixed = (number + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)

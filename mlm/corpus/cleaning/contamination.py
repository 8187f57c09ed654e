"""Overlap with evaluation sets: training documents that hold a long run of words of a test item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.cleaning.shingles import Hashes, Rows, ngrams, unit_rows, unit_strings

Indices = NDArray[np.int64]

CHARACTERS_AT_ONCE = 1 << 22

UNSPACED_FACTOR = 2
"""A Japanese word has about two characters: n words are sought as 2n characters in a text without spaces."""


@dataclass(frozen=True)
class Item:
    """A text of an evaluation set. where: file and line, or what else tells a person which one."""

    where: str
    text: str


@dataclass(frozen=True)
class Overlap:
    """What a document shares with an evaluation set. at: the unit of the document where it begins."""

    ngram: str
    item: str
    at: int


class EvaluationSet:
    """The n-grams of evaluation texts. n: units of a run, twice as many in a text without spaces.

    items: how many texts; short: how many of them have fewer units than that. They cannot be told from
    chance and are not sought.
    """

    def __init__(self, items: Iterable[Item], n: int):
        self.n = n
        self.items = self.short = 0
        self._where: list[str] = []
        found: dict[int, list[tuple[Hashes, Indices]]] = {n: [], n * UNSPACED_FACTOR: []}
        for together in _together(items):
            self._add(together, found)
        self._tables = {length: _Table(parts) for length, parts in found.items() if parts}

    def _add(self, items: list[Item], found: dict[int, list[tuple[Hashes, Indices]]]) -> None:
        rows = unit_rows([item.text for item in items])
        counts = np.diff(rows.ends)
        owners = np.repeat(np.arange(len(items)), counts)
        lengths = np.where(rows.unspaced, self.n * UNSPACED_FACTOR, self.n)
        self.short += int(np.count_nonzero(counts < lengths))
        for length, parts in found.items():
            hashes = ngrams(rows.hashes, length)
            first, last = owners[: len(hashes)], owners[length - 1 :]
            whole = (first == last) & (lengths[first] == length)
            if whole.any():
                parts.append((hashes[whole], first[whole] + self.items))
        self._where += [item.where for item in items]
        self.items += len(items)

    @property
    def ngrams(self) -> int:
        return sum(len(table.hashes) for table in self._tables.values())

    def overlaps(self, rows: Rows, texts: Sequence[str]) -> dict[int, Overlap]:
        """Of each text that shares an n-gram with the set, by its number, the first one it shares.

        rows: the units of the texts.
        """
        first: dict[int, tuple[int, int, int]] = {}
        for length, table in self._tables.items():
            for at, item in table.hits(ngrams(rows.hashes, length)):
                text = int(np.searchsorted(rows.ends, at, side="right")) - 1
                place = at - int(rows.ends[text])
                is_whole = at + length <= rows.ends[text + 1]
                if is_whole and (text not in first or place < first[text][0]):
                    first[text] = place, item, length
        return {text: self._overlap(texts[text], *found) for text, found in sorted(first.items())}

    def _overlap(self, text: str, at: int, item: int, length: int) -> Overlap:
        words = unit_strings(text)[at : at + length]
        return Overlap(("" if length > self.n else " ").join(words), self._where[item], at)


def _together(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in lists of a bounded number of characters."""
    gathered, characters = [], 0
    for item in items:
        gathered.append(item)
        characters += len(item.text)
        if characters >= CHARACTERS_AT_ONCE:
            yield gathered
            gathered, characters = [], 0
    if gathered:
        yield gathered


class _Table:
    """Hashes of one length, each with the first item that has it."""

    def __init__(self, parts: list[tuple[Hashes, Indices]]):
        everything = np.concatenate([hashes for hashes, _ in parts])
        owners = np.concatenate([numbers for _, numbers in parts])
        self.hashes, places = np.unique(everything, return_index=True)
        self._owners = owners[places]
        # Nearly every n-gram of a document is in no evaluation set; its leading bits say so at once.
        bits = max(16, min(26, len(self.hashes).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._leading = np.zeros(1 << bits, dtype=bool)
        self._leading[self.hashes >> self._shift] = True

    def hits(self, hashes: Hashes) -> Iterator[tuple[int, int]]:
        """(place in hashes, item) of each one that is in the table, in order."""
        possible = np.flatnonzero(self._leading[hashes >> self._shift])
        place = np.minimum(np.searchsorted(self.hashes, hashes[possible]), len(self.hashes) - 1)
        hit = self.hashes[place] == hashes[possible]
        yield from zip(possible[hit].tolist(), self._owners[place[hit]].tolist(), strict=True)

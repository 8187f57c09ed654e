"""Texts as sets of n-grams, the common ground of near-duplicates and of overlap with evaluation sets.

A text is a row of units: words, as runs of letters and digits, and single characters in the scripts that
are written without spaces (Japanese, Chinese, Thai, ...). Case, compatibility forms (full width, ligatures),
punctuation and spaces make no difference, so "Don't" and "don 't", or １２ and 12, are the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

# Ranges of scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer; radicals, kana,
# bopomofo, Han and its extensions. Korean is written with spaces and is not among them.
_UNSPACED = (
    *((0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x2FDF), (0x3005, 0x3007)),
    *((0x3021, 0x3029), (0x3040, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF)),
    *((0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)
_SEPARATOR, _IN_WORD, _ALONE = 0, 1, 2
# Beyond the planes of letters there are only tags and private characters.
_TABLE_SIZE = 0x40000
# Arrays of 64 bits a character: a long document is hashed in stretches.
_STRETCH_CHARACTERS = 1 << 20
_CUT = re.compile(r"[\s。、]")
_BASE, _BASE_INVERSE = 0x9E3779B97F4A7C15, pow(0x9E3779B97F4A7C15, -1, 1 << 64)


@dataclass(frozen=True)
class Rows:
    """Texts as units, one after the other.

    hashes: of 64 bits, one a unit; ends: where each text begins in them, and the last one ends; alone: how
    many units of each text are single characters of a script without spaces. Shapes: [units], 2 x [texts].
    """

    hashes: Hashes
    ends: NDArray[np.int64]
    alone: NDArray[np.int64]

    def row(self, text: int) -> Hashes:
        """The hashes of one text."""
        return self.hashes[self.ends[text] : self.ends[text + 1]]

    @property
    def unspaced(self) -> NDArray[np.bool_]:
        """Whether most of a text is in scripts without spaces, where a unit says less than a word does."""
        return 2 * self.alone > np.diff(self.ends)


def unit_rows(texts: Sequence[str]) -> Rows:
    """The units of texts. Equal ones have equal hashes on every machine, different ones hardly ever."""
    hashes: list[Hashes] = []
    counts, alone = np.zeros((2, len(texts)), dtype=np.int64)
    for group in _groups(texts):
        # One array for many short texts: for each by itself, numpy would mostly wait for Python.
        _, codes, starts, stops = _located("\n".join(folded for _, folded in group))
        borders = np.cumsum([0, *(len(folded) + 1 for _, folded in group)])
        first = np.searchsorted(starts, borders)
        single = np.cumsum([False, *(_kinds()[np.minimum(codes[starts], _TABLE_SIZE - 1)] == _ALONE)])
        owners = [number for number, _ in group]
        np.add.at(counts, owners, np.diff(first))
        np.add.at(alone, owners, np.diff(single[first]))
        hashes.append(_hash_units(codes, starts, stops))
    ends = np.concatenate([[0], np.cumsum(counts)])
    return Rows(np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64), ends, alone)


def unit_strings(text: str) -> list[str]:
    """The units themselves, normalised, for people to read; the same in number and order as their hashes."""
    found = []
    for group in _groups([text]):
        for _, stretch in group:
            folded, _, starts, stops = _located(stretch)
            found += [folded[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return found


def ngrams(hashes: Hashes, n: int) -> Hashes:
    """A hash for each run of n units, in order. Shapes: [units] -> [max(0, units - n + 1)]."""
    count = max(len(hashes) - n + 1, 0)
    mixed = np.zeros(count, dtype=np.uint64)
    if count:
        for k, factor in enumerate(_factors(n)):
            mixed += hashes[k : k + count] * factor
    return mix(mixed)


def shingle_sets(rows: Rows, n: int) -> list[Hashes]:
    """Each text's set of n-grams, sorted; fewer than n units are one shingle, none the empty set."""
    runs, counts = ngrams(rows.hashes, n), np.diff(rows.ends)
    sets = []
    for text, (begin, count) in enumerate(zip(rows.ends.tolist(), counts.tolist(), strict=False)):
        mine = runs[begin : begin + count - n + 1] if count >= n else ngrams(rows.row(text), max(count, 1))
        mine = np.sort(mine)
        sets.append(mine[np.concatenate([[True], mine[1:] != mine[:-1]])] if len(mine) else mine)
    return sets


def jaccard(a: Hashes, b: Hashes) -> float:
    """|A and B| / |A or B| of two sorted sets; 0 for two empty ones."""
    if not len(a) or not len(b):
        return 0.0
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / (len(a) + len(b) - common)


def _groups(texts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """(number of a text, folded text or stretch of it), as many together as make a stretch."""
    group, characters = [], 0
    for number, text in enumerate(texts):
        for stretch in _stretches(text):
            folded = stretch.casefold()
            if not folded.isascii():
                folded = unicodedata.normalize("NFKC", folded)
            group.append((number, folded))
            characters += len(folded) + 1
            if characters >= _STRETCH_CHARACTERS:
                yield group
                group, characters = [], 0
    if group:
        yield group


def _stretches(text: str) -> list[str]:
    found, start = [], 0
    while len(text) - start > _STRETCH_CHARACTERS:
        # Before white space or a full stop, where no unit and no composed character is cut.
        cut = _CUT.search(text, start + _STRETCH_CHARACTERS, start + 2 * _STRETCH_CHARACTERS)
        stop = cut.start() if cut else start + 2 * _STRETCH_CHARACTERS
        found.append(text[start:stop])
        start = stop
    return [*found, text[start:]]


def _located(folded: str) -> tuple[str, NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
    """A folded text, its code points, and where in it each unit starts and stops."""
    codes = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds = np.empty(len(codes) + 2, dtype=np.uint8)
    kinds[0] = kinds[-1] = _SEPARATOR
    kinds[1:-1] = _kinds()[np.minimum(codes, _TABLE_SIZE - 1)]
    in_word, alone = kinds == _IN_WORD, kinds[1:-1] == _ALONE
    starts = np.flatnonzero((in_word[1:-1] & ~in_word[:-2]) | alone)
    stops = np.flatnonzero((in_word[1:-1] & ~in_word[2:]) | alone) + 1
    return folded, codes, starts, stops


def _hash_units(codes: NDArray[np.uint32], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Hashes:
    """Each unit's sum of character * BASE^place, from running sums over the text."""
    sums = np.zeros(len(codes) + 1, dtype=np.uint64)
    values = _values()[np.minimum(codes, _TABLE_SIZE - 1)]
    values *= _powers(_BASE, len(codes))
    np.cumsum(values, out=sums[1:])
    return mix((sums[stops] - sums[starts]) * _powers(_BASE_INVERSE, len(codes))[starts])


@cache
def _kinds() -> NDArray[np.uint8]:
    """The kind of each code point. Marks belong to words: many scripts write vowels with them."""
    table = np.zeros(_TABLE_SIZE, dtype=np.uint8)
    for code in range(_TABLE_SIZE - 2):
        if unicodedata.category(chr(code))[0] in "LNM":
            table[code] = _IN_WORD
    for first, last in _UNSPACED:
        stretch = table[first : last + 1]
        stretch[stretch == _IN_WORD] = _ALONE
    # Variation selectors choose a glyph of the character before them.
    table[0xFE00:0xFE10] = _SEPARATOR
    return table


@cache
def _values() -> Hashes:
    """A number for each code point, such that sums of them say which ones were summed."""
    return mix(np.arange(_TABLE_SIZE, dtype=np.uint64))


_POWERS: dict[int, Hashes] = {}


def _powers(base: int, count: int) -> Hashes:
    """base^0 .. base^(count - 1) modulo 2^64."""
    known = _POWERS.get(base)
    if known is None or len(known) < count:
        size = 1 << max(16, (count - 1).bit_length())
        factors = np.full(size, base, dtype=np.uint64)
        factors[0] = 1
        known = _POWERS[base] = np.cumprod(factors, dtype=np.uint64)
    return known[:count]


def mix(values: Hashes) -> Hashes:
    """splitmix64: a bijection of 64 bits after which every bit depends on every other."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


@cache
def _factors(n: int) -> Hashes:
    """One odd factor a place: the same units in another order are another n-gram."""
    return mix(np.arange(1, n + 1, dtype=np.uint64)) | np.uint64(1)

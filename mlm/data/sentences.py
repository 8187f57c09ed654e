"""Documents cut into sentences, English and Japanese alike, which join to the document exactly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_SENTENCE_CHARACTERS = 2_000
# What the library sees at once: its time grows with the square of a paragraph of Japanese.
WINDOW = 512
# Closing brackets and quotes that belong to the sentence before them, wherever the library cuts.
_CLOSING = "」』）】〉》〕］｝〟”’»›\"')]}"
# An opening quote belongs to the sentence after it, which the library forgets when it sees no end of it.
_OPENING = "\"'“‘(["
# What goes on after a quotation: 「行く。」と言った is one sentence.
_CONTINUES = re.compile(r"[ぁ-ゖ、，。．！？!?,;:…」』）]")
_QUOTED = re.compile(r"[」』）】〉》〕］｝〟]\Z")
_NUMBER_ACROSS = re.compile(r"[0-9０-９][．.][0-9０-９]")
_END = re.compile(r"[。！？!?.．…]+[」』）】〉》〕］｝〟”’»\"')\]]*")
_PAUSE = re.compile(r"[、，,;:；：\s]")


@dataclass
class SentenceCounts:
    """How many sentences came out, and how many cuts were made only because one was too long."""

    sentences: int = 0
    forced: int = 0


def split_sentences(text: str, longest: int, counts: SentenceCounts) -> list[str]:
    """The sentences of a text, each with the space before it, so that they join to the text.

    A sentence of more than `longest` characters is cut where one ends inside it (in a long quotation), else
    at a pause, else where it reaches that length; such cuts are counted. Space alone is one sentence.
    """
    sentences: list[str] = []
    start = 0
    while start < len(text):
        ends: list[int] = []
        window = min(WINDOW, longest)
        while not ends and window < longest and start + window < len(text):
            ends, window = _ends(text[start : start + window]), 2 * window
        if not ends:
            window = longest + 1  # one more character, to see whether a sentence ends right there
            ends = _ends(text[start : start + window])
            if start + window >= len(text):
                ends.append(len(text) - start)
        if not ends or ends[0] > longest:
            ends = [_forced(text[start : start + longest])]
            counts.forced += 1
        begin = start
        for end in ends:
            sentences.append(text[start : begin + end])
            start = begin + end
    counts.sentences += len(sentences)
    return sentences


def _ends(text: str) -> list[int]:
    """Where sentences end inside a text: the library's borders, each before the space that follows."""
    return list(_library_ends(text)) if text.strip() else []


def _library_ends(text: str) -> Iterator[int]:
    import sentencex

    begin, stop = len(text) - len(text.lstrip()), len(text.rstrip())
    previous = 0
    for boundary in sentencex.get_sentence_boundaries("en", text):
        at = int(boundary["start_index"])
        if not begin < at < stop:
            continue
        while 0 < at < len(text) and text[at] in _CLOSING and not text[at - 1].isspace():
            at += 1
        while at - 1 > previous and text[at - 1] in _OPENING and text[at - 2].isspace():
            at -= 1
        while at > previous and text[at - 1].isspace():
            at -= 1
        if not previous < at < stop:
            continue
        # ".--But" and "a.b" go on: where words are parted by spaces, so are sentences.
        if text[at - 1 : at + 1].isascii() and not text[at].isspace():
            continue
        if _QUOTED.search(text, at - 1, at) and _CONTINUES.match(text, at):
            continue
        if _NUMBER_ACROSS.match(text, at - 2) or text[at] in "。．！？、，":
            continue
        yield at
        previous = at


def _forced(text: str) -> int:
    """Where to cut a text that is too long for a sentence."""
    for pattern in (_END, _PAUSE):
        cuts = [match.end() for match in pattern.finditer(text, 1)]
        if cuts:
            return cuts[-1]
    return len(text)

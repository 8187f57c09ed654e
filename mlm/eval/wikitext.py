"""WikiText103's test articles: perplexity as the paper measures it, and the ways people compare with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.eval.encode import encode
from mlm.eval.figures import perplexity, text_figures
from mlm.eval.files import UNPUBLISHED, DataFile, Source, read_source
from mlm.eval.lines import Head, head
from mlm.eval.requests import Scores, Segment, Variant
from mlm.eval.windows import PAPER_WINDOW, windows

PAPER_STRIDE = 32

TOKENS = DataFile(
    role="tokens",
    name="wiki.test.tokens",
    size=1_281_077,
    sha256="56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9",
    origin="the test split of wikitext-103-v1, word by word with <unk>, CC BY-SA 3.0",
)
RAW = DataFile(
    role="raw",
    name="wiki.test.raw",
    size=1_290_590,
    sha256="173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
    origin="the test split of wikitext-103-raw-v1, the same in wikitext-2-raw-v1, CC BY-SA 3.0",
    required=False,
)

_SEPARATORS = ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."))
_PUNCTUATION = tuple((f" {mark} ", f"{mark} ") for mark in ":;.!?,")
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"), ('"', '"'), ("'", "'"))
_REST = (
    ("= = = =", "===="),
    ("= = =", "==="),
    ("= =", "=="),
    (" ° ", "°"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
)


class WikiText103:
    """The paper's zero-shot perplexity (section 5) and its variants, on the tokens and the raw file."""

    name = "wikitext103"
    summary = "perplexity on WikiText103's test articles, by word as in the paper, and as others measure it"
    default_files: tuple[DataFile, ...] = (TOKENS, RAW)

    def variants(
        self, paths: Mapping[str, Path], tokenizer: Tokenizer, context: int, limit: int | None
    ) -> list[Variant]:
        """The rows of the table; limit counts lines that are not blank.

        Raises BadData when a file cannot be read or holds fewer than two words or tokens.
        """
        window = min(context, PAPER_WINDOW)
        text = _Text.read(paths[TOKENS.role], TOKENS, limit)
        tokens = encode(tokenizer, detokenized(text.part.text), text.where)
        text.check(len(tokens))
        stripped = len(encode(tokenizer, detokenized(text.part.text).lstrip(), text.where))
        stride = min(PAPER_STRIDE, window)
        paper = _by_word(
            "paper",
            text,
            tokens,
            window,
            stride,
            more={"T_left_stripped": stripped},
            is_paper=window == PAPER_WINDOW and text.part.whole,
        )
        if window < PAPER_WINDOW:
            note = f"; not the paper's window of {PAPER_WINDOW:,}"
            paper = replace(paper, protocol=paper.protocol + note)
        rows = [paper]
        if window // 2 not in (0, stride):
            rows.append(_by_word(f"stride {window // 2}", text, tokens, window, window // 2))
        rows.append(_by_word("non-overlapping", text, tokens, window, window))
        if RAW.role in paths:
            raw = _Text.read(paths[RAW.role], RAW, limit)
            rows.append(_raw_file(raw, tokenizer, window))
            rows.append(_harness(raw, tokenizer, context, "lm-eval wikitext"))
        else:
            rows.append(_harness(text, tokenizer, context, "lm-eval wikitext (tokens file)"))
        return rows


def detokenized(text: str) -> str:
    """WikiText as prose: spaces taken out again around punctuation, brackets, quotes and headings.

    The rules, and their order, are those of the paper's evaluation and of lm-evaluation-harness.
    """
    text = text.replace("s '", "s'")
    # As published, slashes and all: it means to join an apostrophe and a decade and hardly ever matches.
    text = re.sub(r"/' [0-9]/", "/'[0-9]/", text)
    for old, new in (*_SEPARATORS, *_PUNCTUATION):
        text = text.replace(old, new)
    for opening, closing in _PAIRS:
        left, right = re.escape(opening), re.escape(closing)
        text = re.sub(rf"{left}\s*([^{right}]*?)\s*{right}", rf"{opening}\1{closing}", text)
    for old, new in _REST:
        text = text.replace(old, new)
    return text


def original_words(text: str) -> int:
    """T_o of the paper: the pieces between single spaces of the text as it is, not detokenised."""
    return len(text.strip().split(" "))


def documents(text: str) -> list[str]:
    """The text cut before each title (` = Title = `), as lm-evaluation-harness's data set has it.

    A formula that looks like a title counts as one: 62 documents in the test split, whose articles are 60.
    """
    pages: list[str] = []
    lines: list[str] = []
    for line in text.split("\n"):
        plain = line.replace("= = =", "===").replace("= =", "==").strip()
        if plain.startswith("= ") and plain.endswith(" ="):
            pages.append("\n".join(lines))
            lines = []
        lines.append(line)
    return [page for page in [*pages, "\n".join(lines)] if page.strip()]


@dataclass(frozen=True)
class _Text:
    """A file that was read, and the part of it that is scored."""

    source: Source
    file: DataFile
    part: Head

    @classmethod
    def read(cls, path: Path, file: DataFile, limit: int | None) -> _Text:
        source = read_source(path, file)
        return cls(source, file, head(source.text, limit))

    @property
    def where(self) -> str:
        return str(self.source.path)

    def check(self, tokens: int) -> None:
        """Raises BadData when the part is too short to predict anything in."""
        if tokens < 2 or original_words(self.part.text) < 2:
            raise BadData(self.where, "holds fewer than two words or tokens to score", "give a longer text")

    def protocol(self, sentence: str) -> str:
        """The sentence, with what makes the text another one than that of published figures."""
        if not self.part.whole:
            sentence += f"; only the first {self.part.lines:,} of {self.part.of:,} lines"
        return sentence if self.source.published else f"{sentence}; {UNPUBLISHED}"

    def counts(self) -> dict[str, Any]:
        return {**self.source.record(), "lines": self.part.lines, "lines_in_file": self.part.of}

    @property
    def bytes(self) -> int:
        return len(self.part.text.encode())


def _by_word(
    name: str,
    text: _Text,
    tokens: NDArray[np.int64],
    window: int,
    stride: int,
    *,
    more: Mapping[str, int] | None = None,
    is_paper: bool = False,
) -> Variant:
    """Perplexity by original word: exp(nll_total / n_words), n_words = T_o - 1, n_tokens = T - 1 scored.

    That is the exp of the mean nll by token times the ratio (T - 1)/(T_o - 1). more: further counts.
    """
    sentence = (
        f"detokenised text in windows of {window:,} tokens advanced by {stride:,}, every token but the first "
        "scored once; ppl_word = exp(nll_total / n_words), n_words = T_o - 1 words of the file as it is"
    )
    total, words = len(tokens), original_words(text.part.text)
    counts = {
        **text.counts(),
        "window": window,
        "stride": stride,
        "T": total,
        **(more or {}),
        "T_o": words,
        "token_ratio": (total - 1) / (words - 1),
    }

    def summarise(scores: Scores) -> dict[str, Any]:
        nll = float(scores.nll.sum())
        figures = text_figures(nll, n_tokens=total - 1, n_words=words - 1, n_bytes=text.bytes)
        return {**figures, **counts}

    segments = windows(tokens, window, stride)
    return Variant(name, text.protocol(sentence), segments, summarise, "ppl_word", is_paper)


def _raw_file(text: _Text, tokenizer: Tokenizer, window: int) -> Variant:
    tokens = encode(tokenizer, text.part.text, text.where)
    text.check(len(tokens))
    sentence = (
        f"the raw file as it is, not detokenised, in windows of {window:,} tokens that do not overlap, every "
        "token but the first scored once; ppl_token = exp(nll_total / n_tokens), by byte of the file"
    )
    words = original_words(text.part.text) - 1
    counts = {**text.counts(), "window": window, "stride": window}

    def summarise(scores: Scores) -> dict[str, Any]:
        nll = float(scores.nll.sum())
        figures = text_figures(nll, n_tokens=len(tokens) - 1, n_words=words, n_bytes=text.bytes)
        return {**figures, **counts}

    segments = windows(tokens, window, window)
    return Variant("raw file", text.protocol(sentence), segments, summarise, "ppl_token")


def _harness(text: _Text, tokenizer: Tokenizer, context: int, name: str) -> Variant:
    pages = documents(text.part.text)
    encoded = [encode(tokenizer, detokenized(page), text.where, prefix=tokenizer.eod) for page in pages]
    text.check(min(len(tokens) for tokens in encoded))
    segments: list[Segment] = []
    for tokens in encoded:
        segments += windows(tokens, context, context, full_last=True)
    start = (
        "after one end-of-text token"
        if tokenizer.eod is not None
        else "(no end-of-text token: its first unscored)"
    )
    sentence = (
        f"lm-evaluation-harness's `wikitext`, version 2: {len(pages)} documents, detokenised, each {start} "
        f"in windows of {context:,} tokens that do not overlap, words and bytes of the documents as they "
        "are; word_perplexity = exp(nll_total / n_words)"
    )
    if text.file is not RAW:
        sentence += "; on the file with <unk>, where lm-evaluation-harness has the raw one"
    size = {
        "n_tokens": sum(segment.scored for segment in segments),
        # An empty piece before a leading and after a trailing space counts as a word there.
        "n_words": sum(len(re.split(r"\s+", page)) for page in pages),
        "n_bytes": sum(len(page.encode()) for page in pages),
    }
    counts = {**text.counts(), "documents": len(pages), "window": context, "stride": context}

    def summarise(scores: Scores) -> dict[str, Any]:
        figures = text_figures(float(scores.nll.sum()), **size)
        theirs = {
            "word_perplexity": figures["ppl_word"],
            "byte_perplexity": perplexity(figures["nll_total"], size["n_bytes"]),
        }
        return {**theirs, **figures, **counts}

    return Variant(name, text.protocol(sentence), segments, summarise, "word_perplexity")

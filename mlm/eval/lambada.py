"""LAMBADA: the last word of a passage, given all of it before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.eval.encode import encode
from mlm.eval.figures import perplexity
from mlm.eval.files import UNPUBLISHED, DataFile, Source, jsonl_texts, line_of, read_source
from mlm.eval.requests import Scores, Segment, Variant
from mlm.eval.windows import PAPER_WINDOW

OPENAI = DataFile(
    role="openai",
    name="lambada_test.jsonl",
    size=1_819_752,
    sha256="4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226",
    origin="OpenAI's release of the test passages, the one that lambada_openai means",
)
ORIGINAL = DataFile(
    role="original",
    name="lambada_test_plain_text.txt",
    size=1_755_107,
    sha256="4ab6062b68422bf2e83653d367c9765d42404f7ec21b8b59b6518b45606aaef2",
    origin="the original release, tokenised and in lower case, CC BY 4.0",
    required=False,
)

Passage = tuple[int, str]
"""A line number from 1, and the text."""


class Lambada:
    """The paper's strict accuracy (section 5), the harness's definition, and the original release."""

    name = "lambada"
    summary = "accuracy on the last word of LAMBADA's passages: strict as in the paper, by token, perplexity"
    default_files: tuple[DataFile, ...] = (OPENAI, ORIGINAL)

    def variants(
        self, paths: Mapping[str, Path], tokenizer: Tokenizer, context: int, limit: int | None
    ) -> list[Variant]:
        """The rows of the table; limit counts passages.

        Raises BadData naming file and line where one cannot be read or has no word before its last.
        """
        openai = read_source(paths[OPENAI.role], OPENAI)
        passages = _Passages.of(openai, jsonl_texts(openai), tokenizer, context, limit)
        release = "OpenAI's release"
        if context < PAPER_WINDOW:
            release += f", not in the paper's context of {PAPER_WINDOW:,} but in the model's {context:,}"
        rows = [_strict(passages, "paper", release, is_paper=context >= PAPER_WINDOW), _harness(passages)]
        if ORIGINAL.role in paths:
            original = read_source(paths[ORIGINAL.role], ORIGINAL)
            lines = [
                (number, line) for number, line in enumerate(original.text.split("\n"), 1) if line.strip()
            ]
            passages = _Passages.of(original, lines, tokenizer, context, limit)
            rows.append(
                _strict(passages, "original tokenised", "the original release, tokenised, lower case")
            )
        return rows


@dataclass(frozen=True)
class Cut:
    """A passage as context and target; exact: whether the context's own ids begin the whole's."""

    segment: Segment
    exact: bool
    truncated: bool


def cut(tokenizer: Tokenizer, before: str, after: str, context: int, *, spanning: bool, where: str) -> Cut:
    """The ids of before + after, of which those of `after` are targets; at most context + 1, the last ones.

    The split is found in the ids of the whole, since a word alone can have other ids than after a text
    (SentencePiece marks the beginning of one). Where a token spans the border, the split is not exact: it
    is then a target too (spanning), or the target begins after as many ids as `before` alone has.
    Raises BadData when the target alone is longer than the model's context.
    """
    whole = encode(tokenizer, before + after, where)
    if before:
        alone = encode(tokenizer, before, where)
        split = len(alone)
        exact = split < len(whole) and bool(np.array_equal(whole[:split], alone))
        if not exact and spanning:
            shorter = min(split, len(whole))
            differs = np.flatnonzero(whole[:shorter] != alone[:shorter])
            split = int(differs[0]) if len(differs) else shorter
    else:
        split, exact = 0, True
    if tokenizer.eod is not None and split == 0:
        whole, split = np.concatenate([np.asarray([tokenizer.eod]), whole]), 1
    split = max(1, min(split, len(whole) - 1))
    scored = len(whole) - split
    if scored < 1:
        raise BadData(where, "has fewer than two tokens", "leave it out")
    if scored > context:
        wrong = f"ends with a word of {scored:,} tokens, more than the model's seq_length {context:,}"
        raise BadData(where, wrong, "leave it out, or use a model with a longer context")
    return Cut(Segment(whole[-(context + 1) :], scored), exact, truncated=len(whole) > context + 1)


@dataclass(frozen=True)
class _Passages:
    source: Source
    passages: Sequence[Passage]
    total: int
    tokenizer: Tokenizer
    context: int

    @classmethod
    def of(
        cls,
        source: Source,
        passages: Sequence[Passage],
        tokenizer: Tokenizer,
        context: int,
        limit: int | None,
    ) -> _Passages:
        return cls(source, passages[:limit], len(passages), tokenizer, context)

    @property
    def whole(self) -> bool:
        return len(self.passages) == self.total

    def cuts(self, split: Callable[[str], tuple[str, str]], *, spanning: bool) -> list[Cut]:
        found = []
        for number, text in self.passages:
            where = line_of(self.source, number)
            if len(text.split()) < 2:
                raise BadData(where, "has no word before its last one", "leave it out")
            before, after = split(text)
            found.append(cut(self.tokenizer, before, after, self.context, spanning=spanning, where=where))
        return found

    def counts(self, cuts: list[Cut]) -> dict[str, Any]:
        pieces = Counter(cut.segment.scored for cut in cuts)
        return {
            "n_items": len(cuts),
            "n_items_in_file": self.total,
            "n_tokens": sum(cut.segment.scored for cut in cuts),
            "truncated": sum(cut.truncated for cut in cuts),
            "split_mismatches": sum(not cut.exact for cut in cuts),
            "window": self.context,
            **{f"pieces_{n}": pieces[n] for n in sorted(pieces)},
            **self.source.record(),
        }

    def protocol(self, sentence: str, cuts: list[Cut]) -> str:
        """The sentence, with what makes the passages others than those of published figures."""
        if truncated := sum(cut.truncated for cut in cuts):
            sentence += (
                f"; {truncated:,} passages lose their beginning to a context of {self.context:,} tokens"
            )
        if not self.whole:
            sentence += f"; only the first {len(self.passages):,} of {self.total:,} passages"
        return sentence if self.source.published else f"{sentence}; {UNPUBLISHED}"


def last_word(text: str) -> tuple[str, str]:
    """Everything before the last word, stripped, and a space and the word: whitespace separates words."""
    before, word = text.rsplit(maxsplit=1)
    return before.strip(), " " + word


def last_piece(text: str) -> tuple[str, str]:
    """lm-evaluation-harness's split, at the last space: spaces that end the context go to the target."""
    before, _, word = text.rpartition(" ")
    context = before.rstrip()
    return context, before[len(context) :] + " " + word


def _strict(passages: _Passages, name: str, release: str, *, is_paper: bool = False) -> Variant:
    cuts = passages.cuts(last_word, spanning=True)
    counts = passages.counts(cuts)
    counts["whitespace_replaced"] = sum(
        text.strip() != "".join(last_word(text)) for _, text in passages.passages
    )
    sentence = (
        f"{release}: the word after the last whitespace, given the text before it and one space, true tokens "
        "as its own context; accuracy counts words whose every token is the most likely one, "
        "last_token_accuracy those whose last is, ppl_last_word = exp(nll_total / n_items)"
    )

    def summarise(scores: Scores) -> dict[str, Any]:
        nll = float(scores.nll.sum())
        correct, last = int(scores.all_greedy.sum()), int(scores.last_greedy.sum())
        return {
            "accuracy": correct / len(cuts),
            "last_token_accuracy": last / len(cuts),
            "ppl_last_word": perplexity(nll, len(cuts)),
            "ppl_token": perplexity(nll, counts["n_tokens"]),
            "nll_total": nll,
            "n_correct": correct,
            "n_last_token_correct": last,
            **counts,
        }

    segments = [cut.segment for cut in cuts]
    protocol = passages.protocol(sentence, cuts)
    return Variant(name, protocol, segments, summarise, "accuracy", is_paper=is_paper and passages.whole)


def _harness(passages: _Passages) -> Variant:
    cuts = passages.cuts(last_piece, spanning=False)
    counts = passages.counts(cuts)
    sentence = (
        "lm-evaluation-harness's `lambada_openai`, version 1: what follows the last space, with it; acc "
        "counts those of which every token is the most likely one, perplexity = exp(nll_total / n_items)"
    )

    def summarise(scores: Scores) -> dict[str, Any]:
        nll = float(scores.nll.sum())
        correct = int(scores.all_greedy.sum())
        return {
            "acc": correct / len(cuts),
            "perplexity": perplexity(nll, len(cuts)),
            "nll_total": nll,
            "n_correct": correct,
            **counts,
        }

    segments = [cut.segment for cut in cuts]
    return Variant("lm-eval lambada_openai", passages.protocol(sentence, cuts), segments, summarise, "acc")

"""Answers that are spans of a context: windows over long contexts, and from scores back to the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.data.tokenizers import Tokenizer
from mlm.finetune.encode import Controls, Ids, LabelledBatch, collate, pair_sequence
from mlm.finetune.examples import SpanExample

DOC_STRIDE = 128
"""Tokens from the beginning of one window over a context to that of the next, as BERT has it."""
MAX_QUESTION_TOKENS = 64
"""BERT's; of a longer question the beginning is kept."""
MAX_ANSWER_TOKENS = 30
"""BERT's; no longer span is predicted."""


@dataclass(frozen=True)
class Window:
    """A piece of an example's context. start, stop: its tokens; target: [first, last] of the answer's tokens
    as positions in the sequence; position 0, [CLS], where the window does not hold the whole answer.
    """

    example: int
    start: int
    stop: int
    target: tuple[int, int]


@dataclass(frozen=True)
class SpanPrediction:
    """The best span of a question. text: of the context as it is written; start: its first character.

    score: sum of the logits of its two ends. null_score: the same of [CLS], the lowest of all windows:
    that there is no answer must hold for each of them.
    """

    text: str
    start: int
    score: float
    null_score: float


class EncodedSpans:
    """Questions about contexts as windows: [CLS] question [SEP] piece of the context [SEP].

    limit: tokens of a sequence. windows: those of all examples, one behind the other; questions_cut,
    contexts_split: examples with a shortened question, with more windows than one; answers_lost: training
    answers that no window holds whole.
    """

    def __init__(self, examples: Sequence[SpanExample], tokenizer: Tokenizer, limit: int):
        self.examples, self.limit, self.controls = examples, limit, Controls.of(tokenizer)
        most = min(MAX_QUESTION_TOKENS, (limit - 3) // 2)
        known: dict[str, tuple[Ids, NDArray[np.int64]]] = {}
        self._questions: list[Ids] = []
        self._contexts: list[tuple[Ids, NDArray[np.int64]]] = []
        self.windows: list[Window] = []
        self.questions_cut = self.contexts_split = self.answers_lost = 0
        for number, example in enumerate(examples):
            if example.context not in known:
                known[example.context] = tokenizer.encode_with_offsets(example.context)
            ids, offsets = known[example.context]
            question = tokenizer.encode(example.question)
            self.questions_cut += len(question) > most
            self._questions.append(question[:most])
            self._contexts.append((ids, offsets))
            self._add_windows(number, len(question[:most]), offsets)

    def __len__(self) -> int:
        return len(self.windows)

    def _add_windows(self, number: int, question: int, offsets: NDArray[np.int64]) -> None:
        answer = _answer_tokens(self.examples[number], offsets)
        first, pieces = question + 2, window_pieces(len(offsets), self.limit - question - 3)
        found = False
        for start, stop in pieces:
            target = (0, 0)
            if answer is not None and start <= answer[0] and answer[1] < stop:
                target, found = (answer[0] - start + first, answer[1] - start + first), True
            self.windows.append(Window(number, start, stop, target))
        self.contexts_split += len(pieces) > 1
        self.answers_lost += bool(self.examples[number].answers) and not found

    sequences_per_sample = 1

    def length(self, window: int) -> int:
        """Tokens of a window's sequence."""
        return self.context_at(window) + self.windows[window].stop - self.windows[window].start + 1

    def context_at(self, window: int) -> int:
        """Position in the window's sequence at which its context begins."""
        return len(self._questions[self.windows[window].example]) + 2

    def batch(self, windows: Sequence[int]) -> LabelledBatch:
        """The windows with these numbers; a span may begin and end at [CLS] and in the context."""
        rows = []
        for number in windows:
            window = self.windows[number]
            ids, _ = self._contexts[window.example]
            rows.append(
                pair_sequence(self._questions[window.example], ids[window.start : window.stop], self.controls)
            )
        sequences = collate(rows, self.controls.pad, self.limit)
        answerable = np.zeros(sequences.real.shape, dtype=np.bool_)
        answerable[:, 0] = True
        for row, sequence in enumerate(rows):
            answerable[row, sequence.second_at : len(sequence.ids) - 1] = True
        targets = np.asarray([self.windows[number].target for number in windows], dtype=np.int64).reshape(
            -1, 2
        )
        return LabelledBatch(sequences, targets, answerable)

    def predict(
        self, start_scores: Sequence[NDArray[np.floating]], end_scores: Sequence[NDArray[np.floating]]
    ) -> list[SpanPrediction]:
        """The best span of each example over its windows.

        start_scores, end_scores: of each window its logits by position in the sequence, [seq] or longer.
        A span may only begin where its first token stands furthest from the ends of its window, among all
        windows that hold it: there it is seen with most context.
        """
        best: list[SpanPrediction | None] = [None] * len(self.examples)
        null = np.full(len(self.examples), np.inf)
        pieces: list[list[tuple[int, int]]] = [[] for _ in self.examples]
        for window in self.windows:
            pieces[window.example].append((window.start, window.stop))
        for number, window in enumerate(self.windows):
            example, first = window.example, self.context_at(number)
            _, offsets = self._contexts[example]
            starts, ends = np.asarray(start_scores[number]), np.asarray(end_scores[number])
            null[example] = min(null[example], float(starts[0]) + float(ends[0]))
            length = window.stop - window.start
            if length == 0:  # a context of nothing but control characters
                best[example] = SpanPrediction("", 0, null[example], 0.0)
                continue
            owned = owned_tokens((window.start, window.stop), pieces[example])
            begin, end, score = best_span(
                np.where(owned, starts[first : first + length], -np.inf), ends[first : first + length]
            )
            known = best[example]
            if known is None or score > known.score:
                left, right = int(offsets[window.start + begin, 0]), int(offsets[window.start + end, 1])
                text = self.examples[example].context[left:right]
                best[example] = SpanPrediction(text, left, score, 0.0)
        return [
            SpanPrediction(found.text, found.start, found.score, float(null[number]))
            for number, found in enumerate(best)
            if found is not None
        ]

    def describe_cuts(self) -> str:
        """What was cut, for people."""
        return (
            f"{self.contexts_split:,} of {len(self.examples):,} questions have a context longer than "
            f"{self.limit:,} tokens, cut into overlapping windows ({len(self.windows):,} in all); "
            f"{self.questions_cut:,} questions are cut, {self.answers_lost:,} answers are in no window whole"
        )


def window_pieces(tokens: int, room: int) -> list[tuple[int, int]]:
    """[start, stop) of the windows over so many tokens; room: tokens of a window. At least one window."""
    stride, pieces, start = min(DOC_STRIDE, room), [], 0
    while True:
        stop = min(tokens, start + room)
        pieces.append((start, stop))
        if stop == tokens:
            return pieces
        start += stride


def owned_tokens(piece: tuple[int, int], pieces: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Of the tokens of a piece those that stand in no other with more context, the earliest of equals.

    The context of a token is the shorter of the two sides, with a little for the length of the window, as
    BERT has it. Shapes: [stop - start].
    """
    at = np.arange(*piece)

    def context(other: tuple[int, int]) -> NDArray[np.float64]:
        start, stop = other
        inside = (at >= start) & (at < stop)
        return np.where(inside, np.minimum(at - start, stop - 1 - at) + 0.01 * (stop - start), -np.inf)

    every = np.stack([context(other) for other in pieces])  # [pieces, tokens]
    return np.argmax(every, axis=0) == list(pieces).index(piece)


def best_span(starts: NDArray[np.floating], ends: NDArray[np.floating]) -> tuple[int, int, float]:
    """(first, last, score) with the largest starts[first] + ends[last], first <= last, of at most
    MAX_ANSWER_TOKENS tokens; the first of equals. score -inf: nowhere may a span begin.
    """
    tokens = len(starts)
    sums = starts[:, None].astype(np.float64) + ends[None, :]  # [tokens, tokens]
    distance = np.arange(tokens)[None, :] - np.arange(tokens)[:, None]
    sums = np.where((distance >= 0) & (distance < MAX_ANSWER_TOKENS), sums, -np.inf)
    place = int(np.argmax(sums))
    first, last = divmod(place, tokens)
    return first, last, float(sums[first, last])


def _answer_tokens(example: SpanExample, offsets: NDArray[np.int64]) -> tuple[int, int] | None:
    """First and last token that overlap the first answer; None without an answer or tokens for it."""
    if not example.answers:
        return None
    answer = example.answers[0]
    inside = np.flatnonzero(
        (offsets[:, 0] < answer.start + len(answer.text)) & (offsets[:, 1] > answer.start)
    )
    return (int(inside[0]), int(inside[-1])) if len(inside) else None

"""SQuAD's exact match and F1 (torchmetrics'), and version 2.0's questions without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.finetune.examples import SpanExample


@dataclass(frozen=True)
class QuestionScores:
    """Exact match and F1 of each question in [0, 1]. Shapes: [n] each."""

    exact: NDArray[np.float64]
    f1: NDArray[np.float64]


def question_scores(examples: Sequence[SpanExample], texts: Sequence[str]) -> QuestionScores:
    """The official scores of predicted texts, the best over the accepted answers; "" says: no answer.

    A question without an answer is right, 1 and 1, exactly when the text is "".
    """
    # It imports torch and much else, which reading and encoding do without.
    from torchmetrics.functional.text import squad

    exact, f1 = np.zeros(len(examples)), np.zeros(len(examples))
    for number, (example, text) in enumerate(zip(examples, texts, strict=True)):
        if not example.answers or not text:
            exact[number] = f1[number] = float(not example.answers and not text)
            continue
        target: dict[str, Any] = {
            "text": [a.text for a in example.answers],
            "answer_start": [a.start for a in example.answers],
        }
        found = squad([{"prediction_text": text, "id": example.id}], [{"answers": target, "id": example.id}])
        exact[number], f1[number] = float(found["exact_match"]) / 100, float(found["f1"]) / 100
    return QuestionScores(exact, f1)


def with_threshold(
    span_scores: QuestionScores,
    has_answer: NDArray[np.bool_],
    differences: NDArray[np.float64],
    threshold: float,
) -> QuestionScores:
    """The scores when a question counts as unanswerable where its difference is above the threshold.

    span_scores: of the best spans, as if each were given; differences: score of no answer less that of the
    span. Shapes: [n] each.
    """
    says_none = differences > threshold
    right = (~has_answer).astype(np.float64)
    return QuestionScores(
        np.where(says_none, right, np.where(has_answer, span_scores.exact, 0.0)),
        np.where(says_none, right, np.where(has_answer, span_scores.f1, 0.0)),
    )


def best_threshold(
    scores: NDArray[np.float64], has_answer: NDArray[np.bool_], differences: NDArray[np.float64]
) -> tuple[float, float]:
    """(mean score, threshold) of the threshold that scores best on these very questions, so not to be
    compared with a fixed one: the official script's best_exact or best_f1.

    Questions whose difference is at most the threshold are answered. Shapes: [n] each.
    """
    order = np.argsort(differences, kind="stable")
    gains = np.where(has_answer, scores, -1.0)[order]  # of answering it too, in order of differences
    totals = np.concatenate([[0.0], np.cumsum(gains)]) + np.count_nonzero(~has_answer)
    # Equal differences are answered together.
    sorted_differences = differences[order]
    ends = np.concatenate([[True], np.append(sorted_differences[1:] != sorted_differences[:-1], True)])
    place = int(np.argmax(np.where(ends, totals, -np.inf)))
    threshold = float(sorted_differences[place - 1]) if place else float(sorted_differences[0]) - 1.0
    return float(totals[place]) / len(scores), threshold

"""The figures of a task: accuracy and F1 over its questions, each with a 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.finetune.examples import SpanExample
from mlm.finetune.intervals import bootstrap, wilson
from mlm.finetune.squad_metric import best_threshold, question_scores, with_threshold


@dataclass(frozen=True)
class Figure:
    """A share in [0, 1] of `count` questions and its 95 % interval."""

    value: float
    low: float
    high: float
    count: int

    def percent(self) -> str:
        """For people: 68.5 % [64.4, 72.3]."""
        return f"{100 * self.value:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def accuracy(correct: NDArray[np.bool_]) -> Figure:
    """The share that is true, with Wilson's interval. Shapes: [n]."""
    hits, count = int(np.count_nonzero(correct)), len(correct)
    return Figure(hits / count, *wilson(hits, count), count)


def accuracies(correct: NDArray[np.bool_], parts: Sequence[str | None]) -> dict[str, Figure]:
    """`accuracy` of all, and accuracy_PART of each part that occurs."""
    figures = {"accuracy": accuracy(correct)}
    for part in dict.fromkeys(part for part in parts if part is not None):
        figures[f"accuracy_{part}"] = accuracy(correct[np.asarray([each == part for each in parts])])
    return figures


def binary_f1(predicted: NDArray[np.int64], truth: NDArray[np.int64]) -> Figure:
    """F1 of class 1, 2TP / (2TP + FP + FN), 0 where there is none; interval by bootstrap. Shapes: [n]."""

    def f1(predicted: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
        both = np.count_nonzero((predicted == 1) & (truth == 1))
        either = np.count_nonzero(predicted == 1) + np.count_nonzero(truth == 1)
        return 2 * both / either if either else 0.0

    return Figure(f1(predicted, truth), *bootstrap(f1, predicted, truth), len(truth))


def span_figures(
    examples: Sequence[SpanExample],
    texts: Sequence[str],
    differences: NDArray[np.float64] | None,
) -> tuple[dict[str, Figure], dict[str, float]]:
    """exact and f1 of predicted texts, and further values that are no figure of the same kind.

    differences: score of no answer less that of the text, [n]: where above 0 the prediction is that there is
    none; then exact and f1 are split into has_answer and no_answer too, and the values hold best_exact and
    best_f1 with the thresholds that give them on these very questions. None: version 1.1, which always
    answers.
    """
    if differences is None:
        scores = question_scores(examples, texts)
        return {"f1": _mean(scores.f1), "exact": _mean(scores.exact)}, {}
    has_answer = np.asarray([bool(example.answers) for example in examples])
    spans = question_scores(examples, texts)
    scores = with_threshold(spans, has_answer, differences, 0.0)
    figures = {"f1": _mean(scores.f1), "exact": _mean(scores.exact)}
    for name, of in (("has_answer", has_answer), ("no_answer", ~has_answer)):
        if of.any():
            figures |= {f"f1_{name}": _mean(scores.f1[of]), f"exact_{name}": _mean(scores.exact[of])}
    values = {}
    for name, each in (("exact", spans.exact), ("f1", spans.f1)):
        values[f"best_{name}"], values[f"best_{name}_threshold"] = best_threshold(
            each, has_answer, differences
        )
    return figures, values


def _mean(values: NDArray[np.float64]) -> Figure:
    return Figure(float(values.mean()), *bootstrap(lambda drawn: float(drawn.mean()), values), len(values))

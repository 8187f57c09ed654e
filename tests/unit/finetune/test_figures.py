"""Figures against closed forms and tables of others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlm.finetune.examples import Answer, SpanExample
from mlm.finetune.figures import accuracies, binary_f1, span_figures
from mlm.finetune.intervals import Z_95, bootstrap, wilson
from mlm.finetune.squad_metric import best_threshold, question_scores


@pytest.mark.parametrize(("correct", "total"), [(0, 10), (1, 10), (7, 12), (50, 100), (10, 10)])
def test_wilsons_ends_are_where_the_normal_test_just_rejects(correct: int, total: int):
    for end in wilson(correct, total):
        # By definition: the share p with |correct/total - p| = z sqrt(p (1 - p) / total).
        assert abs(correct / total - end) == pytest.approx(
            Z_95 * math.sqrt(end * (1 - end) / total), abs=1e-12
        )


def test_the_bootstrap_of_a_mean_is_as_wide_as_the_standard_error_says():
    values = np.random.default_rng(1).normal(size=2000)
    low, high = bootstrap(lambda drawn: float(drawn.mean()), values)
    error = values.std() / math.sqrt(2000)
    assert low == pytest.approx(values.mean() - Z_95 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + Z_95 * error, abs=0.15 * error)
    assert (low, high) == bootstrap(lambda drawn: float(drawn.mean()), values)


def test_accuracy_is_that_of_all_and_of_each_part():
    correct = np.array([True, True, False, True])
    figures = accuracies(correct, ["middle", "high", "high", None])
    assert {name: (f.value, f.count) for name, f in figures.items()} == {
        "accuracy": (0.75, 4),
        "accuracy_middle": (1.0, 1),
        "accuracy_high": (0.5, 2),
    }


def test_f1_is_the_harmonic_mean_of_precision_and_recall():
    predicted, truth = np.array([1, 1, 1, 0, 0, 0, 1]), np.array([1, 0, 1, 1, 0, 0, 0])
    precision, recall = 2 / 4, 2 / 3
    assert binary_f1(predicted, truth).value == pytest.approx(2 * precision * recall / (precision + recall))
    assert binary_f1(np.zeros(3, np.int64), np.array([0, 0, 1])).value == 0.0


def question(*answers: str) -> SpanExample:
    return SpanExample("a", " ".join(answers), "?", tuple(Answer(answer, 0) for answer in answers))


@pytest.mark.parametrize(
    ("answers", "text", "exact", "f1"),
    [
        (("the Cat",), "a cat!", 1, 1),  # case, punctuation and articles do not count
        (("the black cat",), "black dog", 0, 2 * (1 / 2) * (1 / 2) / (1 / 2 + 1 / 2)),
        (("one two three", "two"), "two", 1, 1),  # the best of the accepted answers
        (("one two three",), "two", 0, 2 * 1 * (1 / 3) / (1 + 1 / 3)),
        (("x x y",), "x", 0, 2 * 1 * (1 / 3) / (1 + 1 / 3)),  # words count as often as they occur
        (("cat",), "", 0, 0),
        ((), "", 1, 1),
        ((), "cat", 0, 0),
    ],
)
def test_exact_match_and_f1_of_closed_cases(answers: tuple[str, ...], text: str, exact: float, f1: float):
    scores = question_scores([question(*answers)], [text])
    assert (scores.exact[0], scores.f1[0]) == pytest.approx((exact, f1), abs=1e-6)


def test_the_best_threshold_is_that_of_brute_force():
    random = np.random.default_rng(3)
    for _ in range(50):
        count = int(random.integers(1, 12))
        scores, has_answer = random.random(count), random.random(count) < 0.6
        differences = random.integers(-3, 3, count).astype(float)  # with ties

        def score(threshold, scores=scores, has_answer=has_answer, differences=differences):
            answered = np.where(has_answer, scores, 0.0)
            return float(np.where(differences > threshold, ~has_answer, answered).mean())

        best, threshold = best_threshold(scores, has_answer, differences)
        assert best == pytest.approx(max(score(t) for t in [-99, *differences]), abs=1e-12)
        assert score(threshold) == pytest.approx(best, abs=1e-12)


def test_squad_2_counts_no_answer_above_threshold_0_and_the_best_threshold_apart():
    examples = [question("cat"), question("dog"), question(), question()]
    differences = np.array([-2.0, 1.0, 3.0, -1.0])
    figures, values = span_figures(examples, ["cat", "dog", "x", "x"], differences)
    # cat answered, dog wrongly not, the first impossible one right, the second answered.
    assert figures["exact"].value == 0.5
    assert figures["exact_has_answer"].value == 0.5
    assert figures["exact_no_answer"].value == 0.5
    # Only cat answered gives three of four; so does answering all but the first impossible one, a tie.
    assert values["best_exact"] == pytest.approx(0.75, abs=1e-9)
    assert values["best_exact_threshold"] == -2.0

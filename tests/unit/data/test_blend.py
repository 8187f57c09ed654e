from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlm.data.blend import MAX_SAMPLES, Blend, blend_problem

WEIGHTS = st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12)
EXTREME = [
    [0.001, 0.999],
    [0.999, 0.001],
    [1e-9, 1.0],
    [0.3, 0.7],
    [1, 0, 2],
    [0.5, 0.25, 0.25],
    [1, 1, 1],
    [0.0, 3.0],
    [0.9, 0.05, 0.03, 0.02],
]


def running_counts(weights: list[float], samples: int) -> np.ndarray:
    """counts[n, d]: how many of the first n samples came from dataset d, by walking over them."""
    drawn, _ = Blend(weights).locate(np.arange(samples))
    counts = np.zeros((samples + 1, len(weights)), dtype=int)
    for n, dataset in enumerate(drawn.tolist()):
        counts[n + 1] = counts[n]
        counts[n + 1, dataset] += 1
    return counts


@pytest.mark.parametrize("weights", EXTREME, ids=str)
def test_after_any_number_of_samples_each_dataset_has_its_weight_of_them_within_one(weights: list[float]):
    counts, whole = running_counts(weights, 200), sum(map(Fraction, map(str, weights)))
    for n in range(1, 201):
        for dataset, weight in enumerate(weights):
            wanted = Fraction(str(weight)) * n / whole
            assert abs(counts[n, dataset] - wanted) <= 1, (n, dataset, counts[n, dataset], float(wanted))
            assert weight or counts[n, dataset] == 0


@given(WEIGHTS, st.integers(1, 400))
@example([1.0] * 9, 300)
@example([0.24] * 4 + [0.04], 300)
@settings(max_examples=60, deadline=None)
def test_no_count_is_further_from_its_weight_than_the_bound_which_is_below_one_and_a_half(
    weights: list[float], samples: int
):
    blend, counts = Blend(weights), running_counts(weights, samples)
    assert blend.bound <= (1.0 if len(weights) <= 4 else 1.5)
    wanted = np.arange(samples + 1)[:, None] * np.array(blend.weights)
    assert np.abs(counts - wanted).max() <= blend.bound + 1e-6
    assert np.abs(counts - np.round(wanted)).max() <= 1


@given(WEIGHTS, st.integers(0, 10**12))
@settings(max_examples=60, deadline=None)
def test_a_dataset_gives_its_samples_one_after_the_other_and_the_counts_say_how_many(
    weights: list[float], start: int
):
    blend, number = Blend(weights), 100
    drawn, inner = blend.locate(np.arange(start, start + number))
    before, after = blend.counts(start), blend.counts(start + number)
    assert sum(before) == start
    for dataset in range(len(weights)):
        assert inner[drawn == dataset].tolist() == list(range(before[dataset], after[dataset]))


def test_where_a_sample_comes_from_depends_on_its_number_alone():
    blend = Blend([0.2, 0.5, 0.3])
    drawn, inner = blend.locate(np.arange(1000))
    for batch in (1, 7, 64):
        for start in range(0, 1000, batch):
            some = blend.locate(np.arange(start, min(start + batch, 1000)))
            assert some[0].tolist() == drawn[start : start + batch].tolist()
            assert some[1].tolist() == inner[start : start + batch].tolist()


def test_weights_are_relative():
    numbers = np.arange(500)
    for scaled in ([3, 7], [0.3, 0.7], [30, 70]):
        assert Blend(scaled).locate(numbers)[0].tolist() == Blend([0.3, 0.7]).locate(numbers)[0].tolist()


def test_a_trillion_samples_are_counted_as_exactly_as_ten():
    blend = Blend([0.1, 0.9])
    n = 10**12
    assert blend.counts(n) == [pytest.approx(10**11, abs=1), pytest.approx(9 * 10**11, abs=1)]
    drawn, _ = blend.locate(np.arange(MAX_SAMPLES - 1000, MAX_SAMPLES))
    assert np.bincount(drawn).tolist() == [100, 900]


@pytest.mark.parametrize("number", [-1, MAX_SAMPLES])
def test_a_number_that_cannot_be_counted_is_refused(number: int):
    with pytest.raises(ValueError, match="are not in"):
        Blend([1, 2]).locate([0, number])


def test_three_hundred_datasets_are_blended_within_seconds_and_within_the_bound():
    rng = np.random.default_rng(0)
    weights = (10 ** rng.uniform(-4, 0, 300)).tolist()
    blend = Blend(weights)
    counts = np.array(blend.counts(10**6))
    assert np.abs(counts - 10**6 * np.array(blend.weights)).max() <= blend.bound < 1.5


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], "names no dataset"),
        ([0.5, -0.5], r"data.blend\[1\].weight=-0.5 is negative"),
        ([math.nan, 1], r"data.blend\[0\].weight=nan is not a finite number"),
        ([1, math.inf], r"data.blend\[1\].weight=inf is not a finite number"),
        ([0, 0], "gives every dataset the weight 0"),
    ],
)
def test_weights_that_mean_nothing_are_a_problem(weights: list[float], message: str):
    with pytest.raises(AssertionError, match=message):
        Blend(weights)
    assert blend_problem(weights) is not None
    assert blend_problem([0, 1e-9]) is None

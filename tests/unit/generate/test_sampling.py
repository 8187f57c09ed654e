"""Which token is drawn: filters against their definitions, frequencies against the softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlm.errors import CheckpointError
from mlm.generate.sampling import Sampling

LOGITS = np.log(np.array([0.05, 0.4, 0.1, 0.3, 0.1, 0.05])) + 3.0


def drawn(sampling: Sampling, logits: np.ndarray = LOGITS, count: int = 4000) -> np.ndarray:
    """How often each id comes, over the steps of one stream."""
    stream = sampling.stream(3, 1)
    ids = [sampling.choose(logits, stream, step) for step in range(count)]
    return np.bincount(ids, minlength=len(logits)) / count


def chi_squared(found: np.ndarray, expected: np.ndarray, count: int = 4000) -> float:
    kept = expected > 0
    assert found[~kept].sum() == 0
    return float((count * (found - expected)[kept] ** 2 / expected[kept]).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_those_of_the_softmax_at_a_temperature(temperature):
    expected = np.exp(LOGITS / temperature)
    expected /= expected.sum()
    # 99.99 % of chi-squared with five degrees of freedom are below 25.7.
    assert chi_squared(drawn(Sampling(temperature=temperature)), expected) < 25.7


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"top_k": 1}, [1]),
        ({"top_k": 3}, [1, 2, 3]),  # ids 2 and 4 are equally likely: the lower one
        ({"top_k": 99}, [0, 1, 2, 3, 4, 5]),
        ({"top_p": 1e-9}, [1]),
        ({"top_p": 0.39}, [1]),
        ({"top_p": 0.69}, [1, 3]),
        ({"top_p": 0.75}, [1, 2, 3]),
        ({"top_p": 0.93}, [0, 1, 2, 3, 4]),
        ({"top_p": 1.0}, [0, 1, 2, 3, 4, 5]),
        # Of ids 1 and 3 alone the first has 4/7 = 0.571.
        ({"top_k": 2, "top_p": 0.57}, [1]),
        ({"top_k": 2, "top_p": 0.58}, [1, 3]),
    ],
)
def test_a_filter_leaves_the_likeliest_tokens_and_their_odds(filters, kept):
    expected = np.zeros(6)
    expected[kept] = np.exp(LOGITS)[kept] / np.exp(LOGITS)[kept].sum()
    assert chi_squared(drawn(Sampling(**filters)), expected) < 25.7


def test_the_temperature_comes_before_the_nucleus():
    # At temperature 1/2 the likeliest of 0.4, 0.3, 0.1, 0.1, 0.05, 0.05 has 0.16 of 0.275.
    assert drawn(Sampling(temperature=0.5, top_p=0.58), count=200)[1] == 1
    assert drawn(Sampling(temperature=0.5, top_p=0.59), count=200)[1] < 1


def test_temperature_0_and_equal_logits_take_the_lowest_id():
    stream = Sampling().stream(0, 0)
    assert Sampling(temperature=0).choose(np.array([1.0, 2.0, 2.0]), stream, 0) == 1
    assert Sampling(top_k=1).choose(np.array([1.0, 2.0, 2.0]), stream, 0) == 1


def test_streams_of_prompts_samples_seeds_and_steps_are_uniform_and_have_nothing_in_common():
    ids = np.arange(2000)
    base = Sampling(seed=5)
    streams = [
        base.stream(0, 0).uniform(0, ids),
        base.stream(0, 0).uniform(1, ids),
        base.stream(1, 0).uniform(0, ids),
        base.stream(0, 1).uniform(0, ids),
        replace(base, seed=6).stream(0, 0).uniform(0, ids),
        base.stream(0, 0, [7]).uniform(0, ids),
        base.stream(0, 0, [8]).uniform(0, ids),
        base.stream(0, 0).uniform(0, ids + 1),
    ]
    for number, numbers in enumerate(streams):
        assert 0 < numbers.min() < numbers.max() < 1
        # Mean and variance of a uniform number, within five standard errors.
        assert abs(numbers.mean() - 1 / 2) < 5 * (1 / 12 / 2000) ** 0.5
        assert abs(numbers.var() - 1 / 12) < 5 * (1 / 180 / 2000) ** 0.5
        for other in streams[:number]:
            assert abs(np.corrcoef(numbers, other)[0, 1]) < 5 / 2000**0.5


def test_a_filter_does_not_change_the_numbers_of_the_tokens_it_leaves():
    """Wherever the free draw falls inside the filter, the filtered draw is the same."""
    free, filtered = Sampling(seed=2), Sampling(seed=2, top_k=3)
    stream = free.stream(0, 0)
    pairs = [(free.choose(LOGITS, stream, n), filtered.choose(LOGITS, stream, n)) for n in range(300)]
    assert all(a == b for a, b in pairs if a in (1, 2, 3))
    assert any(a not in (1, 2, 3) for a, _ in pairs)


def test_rounding_of_the_logits_changes_almost_no_draw():
    """Rounding in fp32 moves sums that are cumulated over a vocabulary all together, but no largest one."""
    generator = np.random.default_rng(0)
    sampling = Sampling()
    changed = 0
    for step in range(300):
        logits = generator.normal(size=5000)
        rounded = logits.astype(np.float32).astype(np.float64)
        stream = sampling.stream(0, 0)
        changed += sampling.choose(logits, stream, step) != sampling.choose(rounded, stream, step)
    assert changed == 0


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(bad, temperature):
    sampling = Sampling(temperature=temperature)
    with pytest.raises(CheckpointError, match="not finite"):
        sampling.choose(np.array(bad), sampling.stream(0, 0), 0)

"""The notice of a jumping loss: made spikes are told once, and noise never is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlm.train.spikes import FEWEST_STEPS, SpikeWatch


def told(losses: list[float]) -> list[int]:
    watch = SpikeWatch()
    return [spike.step for step, loss in enumerate(losses) if (spike := watch.see(step, loss)) is not None]


def curve(steps: int, noise: float, seed: int) -> np.ndarray:
    """A loss that falls as a power of the step, with noise of that deviation."""
    drawn = np.random.default_rng(seed).normal(size=steps)
    return 2.0 + 9.0 * np.arange(1, steps + 1) ** -0.4 + noise * drawn


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.0, 0.003, 0.05, 0.3])
def test_smooth_and_noisy_falling_curves_raise_no_alarm(noise, seed):
    assert told(curve(4000, noise, seed).tolist()) == []


def test_a_curve_that_rises_slowly_or_stays_raises_no_alarm():
    assert told([3.0] * 500) == []
    assert told(np.linspace(3.0, 6.0, 5000).tolist()) == []


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.05])
@pytest.mark.parametrize("length", [1, 5, 30])
def test_a_jump_is_told_at_its_first_step_and_once(noise, length):
    losses = curve(1000, noise, seed=1)
    losses[700 : 700 + length] += 1.5
    assert told(losses.tolist()) == [700]


def test_however_quiet_the_curve_a_rise_of_less_than_2_percent_is_no_jump():
    assert told([2.0] * 50 + [2.039]) == []
    assert told([2.0] * 50 + [2.041]) == [50]


def test_two_jumps_are_two():
    losses = curve(1000, 0.02, seed=2)
    losses[[500, 501, 600]] += 1.0
    assert told(losses.tolist()) == [500, 600]


def test_what_is_told_is_the_loss_and_the_bound_it_passed():
    watch = SpikeWatch()
    for step in range(FEWEST_STEPS):
        assert watch.see(step, 2.0 + 0.1 * (-1) ** step) is None
    spike = watch.see(FEWEST_STEPS, 3.5)
    # Half of the losses are 0.1 above 2.0 and half below: median 2.0, median absolute deviation 0.1.
    assert spike is not None
    assert (spike.step, spike.loss, spike.median) == (FEWEST_STEPS, 3.5, 2.0)
    assert spike.bound == pytest.approx(2.0 + 8 * 1.4826 * 0.1, rel=1e-12)


def test_too_short_a_past_and_losses_that_are_not_finite_say_nothing():
    assert told([2.0] * (FEWEST_STEPS - 1) + [50.0]) == []
    assert told([2.0] * 50 + [math.nan, math.inf] + [2.0] * 50) == []

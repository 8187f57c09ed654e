from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlm.data.order import SampleOrder


def windows_of(order: SampleOrder, epoch: int = 0) -> list[int]:
    numbers = np.arange(order.windows) + epoch * order.windows
    epochs, windows, _ = order.locate(numbers)
    assert (epochs == epoch).all()
    return windows.tolist()


@given(size=st.integers(1, 5000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 10**9))
@example(size=1, seed=0, epoch=0)
@example(size=2, seed=0, epoch=0)
@example(size=3, seed=1, epoch=2)
@example(size=4096, seed=1, epoch=0)
@example(size=4097, seed=1, epoch=0)
@settings(max_examples=100, deadline=None)
def test_every_epoch_visits_every_window_once(size: int, seed: int, epoch: int):
    assert sorted(windows_of(SampleOrder(size, 1, seed), epoch)) == list(range(size))


def test_a_sample_depends_on_its_number_alone():
    order = SampleOrder(1000, 64, seed=7)
    together = order.locate(np.arange(2500))
    for number in (0, 1, 999, 1000, 2499):
        alone = SampleOrder(1000, 64, seed=7).locate(np.array([number]))
        assert [int(x[0]) for x in alone] == [int(x[number]) for x in together]


def test_seeds_and_epochs_have_orders_of_their_own():
    n = 5000
    orders = [
        windows_of(SampleOrder(n, 1, seed), epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0), (0, 0), (0, 1))
    ]
    for i, one in enumerate(orders):
        for other in [list(range(n)), *orders[:i]]:
            # Two random orders agree at one place on average: Poisson(1), 10 or more once in 10^7.
            assert sum(a == b for a, b in zip(one, other, strict=True)) < 10


@pytest.mark.parametrize("size", [5, 8, 100])
def test_every_window_is_equally_likely_at_every_place(size: int):
    epochs = 4000
    _, windows, _ = SampleOrder(size, 1, seed=3).locate(np.arange(epochs * size))
    table = windows.reshape(epochs, size)  # [epochs, place]
    counts = np.stack([np.bincount(table[:, place], minlength=size) for place in range(size)])
    expected = epochs / size
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    freedom = (size - 1) ** 2
    # chi2 has mean `freedom` and standard deviation sqrt(2 * freedom).
    assert abs(chi2 - freedom) < 5 * (2 * freedom) ** 0.5, (chi2, freedom)


def test_neighbours_in_an_order_are_not_neighbours_in_the_text():
    order = np.array(windows_of(SampleOrder(20_000, 1, seed=11)))
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 5 / 20_000**0.5
    assert (np.abs(np.diff(order)) <= 1).mean() < 0.002


def test_epochs_begin_at_offsets_spread_over_the_whole_range():
    _, _, offset = SampleOrder(1, 64, seed=5).locate(np.arange(6400))
    counts = np.bincount(offset, minlength=64)
    assert len(counts) == 64
    assert ((counts - 100) ** 2 / 100).sum() < 63 + 5 * 126**0.5
    _, _, within = SampleOrder(500, 64, seed=5).locate(np.arange(500))
    assert len(set(within.tolist())) == 1


def test_a_trillion_windows_neither_overflow_nor_collide():
    order = SampleOrder(2**40 + 12_345, 4096, seed=1)
    numbers = np.arange(4096, dtype=np.int64) + 3 * order.windows + 2**39
    epoch, window, offset = order.locate(numbers)
    assert (epoch == 3).all()
    assert window.dtype == np.int64
    assert window.min() >= 0
    assert window.max() < order.windows
    assert len(set(window.tolist())) == 4096
    assert window.max() > 2**39
    assert 0 <= offset.min() <= offset.max() < 4096


def test_the_order_of_a_seed_never_changes():
    # Recorded once: a run that is resumed with a later version goes on with the same samples.
    assert windows_of(SampleOrder(10, 1, seed=1234)) == [9, 6, 2, 5, 1, 8, 4, 7, 0, 3]


def test_a_negative_number_is_refused():
    with pytest.raises(ValueError, match="-3 is negative"):
        SampleOrder(10, 1, 0).locate(np.array([4, -3]))

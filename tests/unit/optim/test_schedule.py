"""The learning rate against the paper's closed form."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.config.schema import Decay
from mlm.optim.schedule import learning_rate


def paper(step: int) -> float:
    return learning_rate(step, lr=1.5e-4, min_lr=1e-5, warmup_steps=3000, decay_steps=300_000)


def test_the_papers_schedule_at_its_landmarks():
    assert paper(1) == pytest.approx(1.5e-4 / 3000)
    assert paper(1500) == pytest.approx(0.75e-4)
    assert paper(3000) == 1.5e-4
    assert paper(3000 + 297_000 // 2) == pytest.approx((1.5e-4 + 1e-5) / 2)
    assert paper(300_000) == 1e-5
    assert paper(400_000) == 1e-5


def test_the_cosine_interpolates_to_min_lr_instead_of_being_cut_off_there():
    def at(step: int) -> float:
        return learning_rate(step, lr=1.0, min_lr=0.1, warmup_steps=10, decay_steps=110)

    assert at(60) == pytest.approx(0.55)
    assert at(85) == pytest.approx(0.1 + 0.45 * (1 + math.cos(0.75 * math.pi)))
    assert at(85) == pytest.approx(0.2318, abs=1e-4)
    assert at(109) > at(110) == 0.1


def test_the_papers_schedule_for_bert_falls_on_a_straight_line_to_0():
    def at(step: int) -> float:
        return learning_rate(
            step, lr=1e-4, min_lr=0.0, warmup_steps=10_000, decay_steps=2_000_000, decay=Decay.linear
        )

    assert at(5_000) == pytest.approx(0.5e-4)
    assert at(10_000) == 1e-4
    for share in (0.25, 0.5, 0.75):
        assert at(10_000 + round(share * 1_990_000)) == pytest.approx(1e-4 * (1 - share), rel=1e-12)
    assert at(2_000_000) == at(3_000_000) == 0.0


@given(
    warmup=st.integers(0, 50),
    length=st.integers(1, 100),
    lr=st.floats(1e-6, 1.0),
    share=st.floats(0.0, 1.0),
    form=st.sampled_from(Decay),
)
def test_every_step_has_a_rate_between_its_bounds_that_rises_then_falls(warmup, length, lr, share, form):
    decay = warmup + length
    rates = [
        learning_rate(s, lr=lr, min_lr=lr * share, warmup_steps=warmup, decay_steps=decay, decay=form)
        for s in range(1, decay + 5)
    ]
    assert rates[0] > 0 or (share == 0 and decay == 1)
    assert all(a < b for a, b in pairwise(rates[:warmup]))
    assert all(a >= b for a, b in pairwise(rates[max(warmup - 1, 0) :]))
    assert max(rates) <= lr * (1 + 1e-12)
    assert rates[-1] == lr * share

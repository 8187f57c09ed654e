"""When the time is over: with one more step and a save still to fit in."""

from __future__ import annotations

import signal

import pytest

from mlm.launch.signals import Signals
from mlm.parallel.mesh import Mesh
from mlm.train.stop import LEAVE_S, Stop, TimeLimit


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("step_s", "save_s"), [(10.0, 0.0), (10.0, 100.0), (45.0, 300.0)])
def test_the_run_ends_within_its_hours_and_wastes_no_more_than_two_steps(step_s, save_s):
    clock = Clock()
    limit = TimeLimit(1.0, clock.now, clock=clock)
    began, first_step_s = clock.now, 300.0
    clock.now += 60  # set-up
    steps = 0
    while not limit.is_over(save_s):
        clock.now += step_s if steps else first_step_s
        steps += 1
    clock.now += step_s  # the step that began with the question is finished
    used = clock.now + save_s + LEAVE_S - began
    assert used <= 3600
    assert used > 3600 - 2 * step_s
    assert steps > 10


def test_a_long_pause_between_steps_is_expected_to_come_again():
    clock = Clock()
    limit = TimeLimit(1.0, clock.now, clock=clock)
    pauses = [1.0, 1.0, 500.0, 1.0]
    for pause in pauses:
        assert not limit.is_over(0)
        clock.now += pause
    clock.now = 1000 + 3600 - 2 * 500 - LEAVE_S - 1
    limit.is_over(0)
    assert TimeLimit(1.0, 1000.0, clock=clock).is_over(0) is False
    clock.now += 2
    assert limit.is_over(0)


def test_a_signal_is_the_reason_and_goes_before_the_time():
    heard, clock = Signals(), Clock()
    stop = Stop(Mesh.single(), heard, TimeLimit(0.5, clock.now, clock=clock), timeout_s=1)
    stop.ask(0)
    heard.hear(signal.SIGUSR1)
    assert not stop.answered(), "heard within a step is said in the next"
    clock.now += 1800
    stop.ask(0)
    assert stop.answered()
    assert stop.reason == "SIGUSR1"


def test_the_time_limit_is_named_as_it_was_typed_and_left_out_where_no_step_is():
    clock = Clock()
    stop = Stop(Mesh.single(), Signals(), TimeLimit(0.5, clock.now, clock=clock), timeout_s=1)
    clock.now += 1801
    assert not stop.agreed()
    stop.ask(0)
    assert stop.answered()
    assert stop.reason == "train.max_hours=0.5"

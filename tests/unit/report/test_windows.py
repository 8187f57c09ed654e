"""Which steps are timed together, and which count."""

from __future__ import annotations

import pytest

from mlm.report.windows import windows


def records(*spans: tuple[int, float | None], **more) -> list[dict]:
    """Records of windows (steps, seconds), numbered from 1."""
    found, step = [], 0
    for length, seconds in spans:
        for _ in range(length):
            step += 1
            found.append({"step": step, "step_time_s": seconds, "window_steps": length, **more})
    return found


def spans(found) -> list[tuple[int, int, int, float]]:
    return [(w.first_step, w.last_step, w.steps, w.step_time_s) for w in found]


def test_a_window_is_its_steps_and_its_mean():
    found = windows(records((1, 3.0), (4, 1.2), (5, 1.0)), warmup_steps=0)
    assert spans(found) == [(1, 1, 1, 3.0), (2, 5, 4, 1.2), (6, 10, 5, 1.0)]


def test_two_windows_that_took_the_same_time_are_two():
    assert spans(windows(records((2, 1.0), (2, 1.0)), 0)) == [(1, 2, 2, 1.0), (3, 4, 2, 1.0)]


def test_without_a_recorded_length_equal_times_in_a_row_are_one_window():
    without = [{k: v for k, v in r.items() if k != "window_steps"} for r in records((2, 1.0), (3, 2.0))]
    assert spans(windows(without, 0)) == [(1, 2, 2, 1.0), (3, 5, 3, 2.0)]


@pytest.mark.parametrize(("warmup", "first"), [(0, 1), (1, 2), (2, 6), (5, 6), (6, 11), (15, None)])
def test_a_window_with_any_step_of_the_warm_up_is_left_out(warmup, first):
    found = windows(records((1, 3.0), (4, 1.2), (5, 1.0), (5, 1.1)), warmup)
    assert (found[0].first_step if found else None) == first


def test_profiled_steps_and_steps_without_a_time_are_in_no_window():
    plain = records((2, 1.0), (2, 1.1))
    profiled = [{"step": 5, "step_time_s": None, "window_steps": None, "profiled": True}]
    timed_but_profiled = [{"step": 6, "step_time_s": 9.0, "window_steps": 1, "profiled": True}]
    assert spans(windows(plain + profiled + timed_but_profiled, 0)) == spans(windows(plain, 0))


def test_a_window_cut_off_by_the_end_of_the_file_keeps_its_length():
    assert spans(windows(records((1, 1.0), (5, 2.0))[:-2], 0)) == [(1, 1, 1, 1.0), (2, 4, 5, 2.0)]


def test_utilisation_is_carried_and_null_stays_unknown():
    assert windows(records((2, 1.0), mfu=0.4, hfu=0.5), 0)[0].mfu == 0.4
    assert windows(records((2, 1.0), mfu=None, hfu=None), 0)[0].hfu is None

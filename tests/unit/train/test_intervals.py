"""Arithmetic on intervals against cases by hand and against counting moments one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlm.train.intervals import difference, intersection, length, union

intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def moments(given: list[tuple[int, int]]) -> set[int]:
    """Whole units of time inside the intervals: the sets the functions stand for."""
    return {moment for start, end in given for moment in range(start, end)}


def test_touching_and_nested_intervals_join_and_empty_ones_vanish() -> None:
    assert union([(5, 7), (0, 2)], [(2, 3), (1, 2), (9, 9), (4, 3)]) == [(0, 3), (5, 7)]


def test_what_is_common_ends_where_either_ends() -> None:
    assert intersection([(0, 4), (6, 10)], [(3, 7), (9, 12)]) == [(3, 4), (6, 7), (9, 10)]
    assert intersection([(0, 4)], [(4, 8)]) == []


def test_one_interval_can_cut_several_and_several_can_cut_one() -> None:
    assert difference([(0, 10)], [(2, 3), (5, 6)], [(9, 20)]) == [(0, 2), (3, 5), (6, 9)]
    assert difference([(0, 2), (3, 5), (6, 8)], [(1, 7)]) == [(0, 1), (7, 8)]
    assert difference([(1, 2)], [(0, 3)]) == []
    assert difference([(1, 2)]) == [(1, 2)]


@given(intervals, intervals, intervals)
def test_each_operation_is_the_one_on_sets_of_moments(a, b, c) -> None:
    assert moments(union(a, b)) == moments(a) | moments(b)
    assert moments(intersection(a, b)) == moments(a) & moments(b)
    assert moments(difference(a, b, c)) == moments(a) - moments(b) - moments(c)
    assert length(a) == len(moments(a))


@given(intervals, intervals)
def test_results_are_sorted_and_leave_gaps_between_their_intervals(a, b) -> None:
    for result in (union(a, b), intersection(a, b), difference(a, b)):
        ends = [moment for interval in result for moment in interval]
        assert ends == sorted(set(ends)), result

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.eval.lines import head
from mlm.eval.windows import windows


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, int]:
    """Tokens, window, stride."""
    window = draw(st.integers(1, 40))
    return draw(st.integers(2, 200)), window, draw(st.integers(1, window))


@given(cases(), st.booleans())
def test_every_token_but_the_first_is_scored_exactly_once_for_any_stride(
    case: tuple[int, int, int], full_last: bool
):
    length, window, stride = case
    found = windows(np.arange(length), window, stride, full_last=full_last)
    scored = np.concatenate([segment.tokens[len(segment.tokens) - segment.scored :] for segment in found])
    assert scored.tolist() == list(range(1, length))
    assert all(1 <= s.scored <= len(s.tokens) - 1 <= window for s in found)


@given(cases())
def test_windows_begin_where_a_multiple_of_the_stride_does_and_leave_out_nothing(case: tuple[int, int, int]):
    length, window, stride = case
    for number, segment in enumerate(windows(np.arange(length), window, stride)):
        assert segment.tokens[0] == number * stride
        assert segment.tokens[-1] == min(number * stride + window, length - 1)
        assert segment.scored <= (window if number == 0 else stride)


@given(cases())
def test_a_full_last_window_reads_as_many_tokens_as_the_others(case: tuple[int, int, int]):
    length, window, stride = case
    found = windows(np.arange(length), window, stride, full_last=True)
    assert {len(segment.tokens) for segment in found} == {min(window + 1, length)}


def test_the_papers_windows_on_a_short_text():
    found = windows(np.arange(1 + 1024 + 32 + 7), 1024, 32)
    assert [(s.tokens[0], len(s.tokens), s.scored) for s in found] == [
        (0, 1025, 1024),
        (32, 1025, 32),
        (64, 1000, 7),
    ]


@pytest.mark.parametrize(
    ("limit", "text", "lines"),
    [
        (None, "a\n\n b\nc", 3),
        (1, "a\n\n", 1),
        (2, "a\n\n b\n", 2),
        (3, "a\n\n b\nc", 3),
        (9, "a\n\n b\nc", 3),
    ],
)
def test_a_limit_keeps_the_first_lines_that_are_not_blank(limit: int | None, text: str, lines: int):
    part = head("a\n\n b\nc", limit)
    assert (part.text, part.lines, part.of) == (text, lines, 3)

"""The rule of --fix-newlines, example by example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.corpus.cleaning.newlines import fix_newlines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\rc\x85d\u2028e\u2029f", "a\nb\nc\nd\ne\nf"),
        ("a\r\n\r\nb", "a\n\nb"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("a\n \t\nb", "a\n\nb"),
        ("a\n\n\u3000\n \nb", "a\n\nb"),
        ("\n\n  a\n  b  \n\n", "  a\n  b  "),
        ("one line", "one line"),
        ("a\n\n b", "a\n\n b"),
        ("  ", "  "),
        ("\n", ""),
        ("", ""),
        ("a\fb\vc", "a\fb\vc"),
    ],
)
def test_newlines(text: str, expected: str):
    assert fix_newlines(text) == expected


@given(st.text(st.sampled_from("ab \t\n\r\x85\u2028\u3000")))
def test_words_and_their_order_stay_and_a_second_time_changes_nothing(text: str):
    fixed = fix_newlines(text)
    assert fixed.split() == text.split()
    assert fix_newlines(fixed) == fixed
    assert "\n\n\n" not in fixed
    assert not {"\r", "\x85", "\u2028"} & set(fixed)
    if text.split():
        assert not fixed.startswith("\n")
        assert not fixed.endswith("\n")


def test_a_megabyte_of_blank_lines_takes_no_time():
    assert fix_newlines("a" + " \n" * 500_000 + "b" + "\n" * 500_000 + " " * 500_000) == "a \n\nb"

"""Requests of lm-evaluation-harness as our engines take them."""

from __future__ import annotations

import numpy as np
import pytest

from mlm.errors import ConfigError, DataError
from mlm.harness.messages import Drawing
from mlm.harness.requests import continuation, drawing, prompt_room, rolling


def test_a_context_is_cut_on_the_left_until_the_model_can_read_all_but_the_last_token():
    whole = continuation([1, 2, 3], [4, 5], 4, "")
    assert whole.tokens.tolist() == [1, 2, 3, 4, 5]
    assert whole.scored == 2
    cut = continuation([1, 2, 3], [4, 5], 3, "")
    assert cut.tokens.tolist() == [2, 3, 4, 5]
    assert cut.scored == 2
    # The first target then is predicted from one token.
    assert continuation([1, 2, 3], [4, 5], 2, "").tokens.tolist() == [3, 4, 5]


def test_a_continuation_without_tokens_or_without_room_is_refused():
    with pytest.raises(DataError, match="'' has no token of its own"):
        continuation([1], [], 4, "")
    with pytest.raises(DataError, match="has 5 tokens, the model reads 4"):
        continuation([1], [2, 3, 4, 5, 6], 4, "too long")


def test_the_windows_of_a_text_are_those_of_the_definition():
    # lm_eval's documentation: tokens 0 to 9 after a prefix, context 4.
    windows = rolling(50, range(10), 4)
    assert [segment.tokens.tolist() for segment in windows] == [
        [50, 0, 1, 2, 3],
        [3, 4, 5, 6, 7],
        [5, 6, 7, 8, 9],
    ]
    assert [segment.scored for segment in windows] == [4, 4, 2]
    assert rolling(50, [], 4) == []


@pytest.mark.parametrize("length", range(1, 40))
def test_every_token_of_a_text_is_scored_once_in_windows_as_long_as_can_be(length):
    windows = rolling(99, range(length), 7)
    scored = [token for w in windows for token in w.tokens[len(w.tokens) - w.scored :].tolist()]
    assert scored == list(range(length))
    assert all(len(w.tokens) == min(8, length + 1) for w in windows)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Drawing(256)),
        ({"until": "\n", "max_gen_toks": 5}, Drawing(5, ("\n",))),
        ({"until": ["a", "", "b"], "max_tokens": 6, "max_new_tokens": 7}, Drawing(7, ("a", "b"))),
        ({"until": None, "max_gen_toks": None}, Drawing(256)),
        ({"do_sample": False, "temperature": 0.7}, Drawing(256)),
        ({"do_sample": True}, Drawing(256, temperature=1.0)),
        ({"do_sample": True, "temperature": 0.0}, Drawing(256)),
        ({"temperature": 0.7, "top_k": 4, "top_p": 0.9}, Drawing(256, (), 0.7, 4, 0.9)),
        ({"temperature": 1, "top_k": 0, "top_p": 1, "num_beams": 1}, Drawing(256, (), 1.0)),
    ],
)
def test_generation_settings_are_read_as_lm_eval_means_them(settings, expected):
    assert drawing(settings, 256) == expected


def test_settings_that_would_be_ignored_are_refused_all_at_once():
    with pytest.raises(ConfigError) as refused:
        drawing({"num_beams": 4, "top_p": 1.5, "temperature": -1, "repetition_penalty": 1.0}, 256)
    told = [str(problem) for problem in refused.value.problems]
    assert [text.split(": ")[0] for text in told] == [
        "generation_kwargs num_beams=4 is nothing the model mlm can do",
        "temperature=-1 is below 0",
        "top_p=1.5 is no share",
    ]


def test_a_prompt_keeps_the_room_that_new_tokens_leave():
    assert prompt_room(Drawing(100), 128) == 28
    with pytest.raises(ConfigError, match="max_gen_toks=128 leaves no room"):
        prompt_room(Drawing(128), 128)


def test_windows_and_ids_are_what_the_scoring_engine_takes():
    assert rolling(1, [2, 3], 4)[0].tokens.dtype == np.int64
    assert continuation([1], [2], 4, "").tokens.dtype == np.int64

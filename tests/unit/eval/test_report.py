"""Tables and JSON of results: what a reader must not miss, and numbers that strict JSON can hold."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mlm.eval.report import as_json, lines, metric_values, table
from mlm.eval.requests import Scores, Segment, Variant
from mlm.eval.run import DataFileRead, Row, TaskResult, _merged, _picked

FILE = DataFileRead("tokens", "/texts/wiki.test.tokens", 1_281_077, "56db" + "0" * 60, published=True)


def result(
    *, context: int = 1024, limit: int | None = None, is_paper: bool = True, ppl: float = 20.0
) -> TaskResult:
    figures = {"ppl_word": ppl, "n_tokens": 270_329, "n_words": 245_565, "window": context, "T_o": 245_566}
    row = Row("paper", "windows", is_paper, "ppl_word", ppl, figures)
    return TaskResult("wikitext103", context, limit, [FILE], 1.0, 10, [row])


def test_the_paper_s_protocol_is_named_as_such_beside_the_paper_s_figures() -> None:
    text = table(result())
    assert "variant paper: the paper's protocol" in text
    for part in ("20.0000", "270,329", "245,565", "19.31", "12.76", "10.81", "T_o 245,566"):
        assert part in text
    assert "1,281,077 bytes, sha256 56db000000000000, the published file" in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"context": 64}, "the model's context is 64"),
        ({"limit": 5}, "limited to 5"),
        ({"context": 64, "limit": 5}, "the model's context is 64, limited to 5"),
    ],
)
def test_anything_else_is_marked_with_its_reason(changes: dict[str, int], reason: str) -> None:
    text = table(result(**changes, is_paper=False))
    assert f"NOT the paper's protocol ({reason})" in text
    assert ("wikitext103, limited to 5" in text) == ("limit" in changes)


def test_a_perplexity_that_overflows_is_shown_and_is_null_in_strict_json() -> None:
    found = [result(ppl=math.inf)]
    assert "inf" in table(found[0])
    (task,) = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert task["rows"][0]["value"] is None
    assert metric_values(found)["wikitext103/paper/ppl_word"] is None


def test_lines_for_training_say_headline_and_limit() -> None:
    assert lines(result(limit=5)) == ["wikitext103, limited to 5  paper: ppl_word 20.0000"]


def test_metrics_have_task_row_and_figure_in_their_names() -> None:
    values = metric_values([result(limit=5)])
    assert values["wikitext103/limit"] == 5
    assert values["wikitext103/paper/n_tokens"] == 270_329


def test_segments_that_variants_share_are_scored_once_and_every_variant_gets_its_own() -> None:
    def segment(*tokens: int, scored: int = 1) -> Segment:
        return Segment(np.array(tokens), scored)

    def variant(*segments: Segment) -> Variant:
        return Variant("v", "p", list(segments), lambda scores: {}, "x")

    first = variant(segment(1, 2), segment(3, 4), segment(1, 2))
    second = variant(segment(3, 4), segment(3, 4, 5), segment(3, 4, 5, scored=2))
    segments, places = _merged([first, second])
    assert [(list(s.tokens), s.scored) for s in segments] == [
        ([1, 2], 1),
        ([3, 4], 1),
        ([3, 4, 5], 1),
        ([3, 4, 5], 2),
    ]
    numbers = np.arange(4.0)
    scores = Scores(numbers, numbers > 0, numbers > 1)
    assert _picked(scores, places[0]).nll.tolist() == [0, 1, 0]
    assert _picked(scores, places[1]).nll.tolist() == [1, 2, 3]

"""Windows and best spans against brute force; predictions are pieces of the text as it is written."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.data.tokenizers import WordPieceTokenizer
from mlm.finetune import spans
from mlm.finetune.examples import Answer, SpanExample
from mlm.finetune.spans import EncodedSpans, best_span, owned_tokens, window_pieces
from mlm.finetune.squad import read_squad

CONTEXT = "In Tōkyō (東京), Élodie cafe\u0301 paid 6 😀 coins; she left."


@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(1, 700), room=st.integers(3, 300))
def test_windows_cover_every_token_and_each_token_is_owned_by_one(tokens: int, room: int):
    pieces = window_pieces(tokens, room)
    assert all(0 < stop - start <= room for start, stop in pieces)
    starts = [start for start, _ in pieces]
    assert all(b - a == min(128, room) for a, b in itertools.pairwise(starts))
    owners = np.zeros(tokens, dtype=int)
    for start, stop in pieces:
        owners[start:stop] += owned_tokens((start, stop), pieces)
    assert (owners == 1).all()


def test_a_token_is_owned_where_it_has_most_context_on_its_poorer_side():
    pieces = window_pieces(400, 256)
    assert pieces == [(0, 256), (128, 384), (256, 400)]
    # Between two windows of one length the middle of what they share decides; the first of equals.
    assert np.flatnonzero(owned_tokens(pieces[0], pieces))[-1] == 191


@pytest.mark.parametrize("tokens", [1, 2, 29, 31, 45])
def test_the_best_span_is_that_of_brute_force(tokens: int):
    starts, ends = np.random.default_rng(tokens).normal(size=(2, tokens))
    every = {(a, b): starts[a] + ends[b] for a in range(tokens) for b in range(a, min(tokens, a + 30))}
    first, last, score = best_span(starts, ends)
    assert (first, last) == max(every, key=every.__getitem__)
    assert score == pytest.approx(every[first, last], abs=1e-12)


@pytest.mark.parametrize(
    "answer", ["Tōkyō", "東京", "Élodie cafe\u0301", "6 😀 coins", "she left", "(東京), Élodie"]
)
def test_targets_lead_back_to_the_answer_as_it_is_written(characters: WordPieceTokenizer, answer: str):
    example = SpanExample("a", CONTEXT, "Who?", (Answer(answer, CONTEXT.index(answer)),))
    encoded = EncodedSpans([example], characters, limit=80)
    (prediction,) = encoded.predict(*one_hot(encoded))
    assert prediction.text == answer
    assert CONTEXT[prediction.start :].startswith(answer)


def one_hot(encoded: EncodedSpans) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores of a model that is certain of the targets of training."""
    batch = encoded.batch(range(len(encoded)))
    scores = np.zeros((2, *batch.sequences.ids.shape))
    for row, target in enumerate(batch.targets):
        for side in (0, 1):
            scores[side, row, target[side]] = 9.0
    return list(scores[0]), list(scores[1])


def test_a_split_context_finds_the_answer_in_the_window_that_holds_it(words: WordPieceTokenizer, monkeypatch):
    monkeypatch.setattr(spans, "DOC_STRIDE", 8)
    context = " ".join(f"w{number}" for number in range(60))
    example = SpanExample("a", context, "w100 w101", (Answer("w41 w42 w43", context.index("w41")),))
    encoded = EncodedSpans([example], words, limit=25)  # 20 tokens of context
    assert [(window.start, window.stop) for window in encoded.windows] == [
        (start, min(60, start + 20)) for start in (0, 8, 16, 24, 32, 40)
    ]
    batch = encoded.batch(range(6))
    # Only windows with the whole answer point at it; in the others [CLS] is right.
    assert batch.targets.tolist() == [[0, 0]] * 3 + [[4 + 17, 4 + 19], [4 + 9, 4 + 11], [4 + 1, 4 + 3]]
    row, real = batch.sequences.ids[4], batch.sequences.real[4]
    assert words.piece(int(row[13])) == "w41"
    assert np.flatnonzero(batch.answerable[4]).tolist() == [0, *range(4, 24)]
    assert int(real.sum()) == 25
    assert (encoded.contexts_split, encoded.questions_cut, encoded.answers_lost) == (1, 0, 0)
    (prediction,) = encoded.predict(*one_hot(encoded))
    assert prediction.text == "w41 w42 w43"
    # No answer must be likely in every window: three of them point at [CLS], three do not.
    assert (prediction.score, prediction.null_score) == (18.0, 0.0)


def test_an_answer_longer_than_a_window_is_counted_as_lost(words: WordPieceTokenizer):
    context = " ".join(f"w{number}" for number in range(60))
    example = SpanExample("a", context, "w100", (Answer(context, 0),))
    assert EncodedSpans([example], words, limit=25).answers_lost == 1


def test_targets_lead_back_to_every_real_answer(bert_vocabulary: WordPieceTokenizer):
    if "MLM_TEST_DATA" not in os.environ:
        pytest.skip("MLM_TEST_DATA names no folder with squad-expmrc")
    path = Path(os.environ["MLM_TEST_DATA"]) / "squad-expmrc" / "expmrc-squad-dev.json"
    examples = read_squad(path, impossible=False)
    encoded = EncodedSpans(examples, bert_vocabulary, limit=384)
    assert encoded.answers_lost == 0
    predictions = encoded.predict(*one_hot(encoded))
    differing = [
        (example.answers[0].text, prediction.text)
        for example, prediction in zip(examples, predictions, strict=True)
        if example.answers[0].text != prediction.text
    ]
    # Only answers that begin or end inside a word, or are longer than 30 tokens, can come back as others.
    assert len(differing) <= len(examples) // 50, differing

"""Sequences against what they are by definition, by hand and by counting."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.data.tokenizers import ByteTokenizer, WordPieceTokenizer
from mlm.errors import DataError
from mlm.finetune.choice import EncodedChoices, question_with_option
from mlm.finetune.encode import cut_longer_first
from mlm.finetune.examples import ChoiceExample, PairExample
from mlm.finetune.pairs import EncodedPairs
from tests.unit.finetune.conftest import LETTERS


def text_of(tokenizer: WordPieceTokenizer, ids: np.ndarray) -> str:
    return " ".join(tokenizer.piece(int(token)) for token in ids)


def w(start: int, stop: int) -> str:
    return " ".join(f"w{number}" for number in range(start, stop))


def test_offsets_are_the_characters_that_tokens_were_made_of(characters: WordPieceTokenizer):
    text = "  Tokyo\t東京, e\u0301te\u0301 ÀB\x00c 😀x"
    ids, offsets = characters.encode_with_offsets(text)
    assert ids.tolist() == characters.encode(text).tolist()
    found = [
        (characters.piece(int(i)).removeprefix("##"), text[a:b])
        for i, (a, b) in zip(ids, offsets, strict=True)
    ]
    assert found == [
        *zip("tokyo", "Tokyo", strict=True),
        ("東", "東"),
        ("京", "京"),
        (",", ","),
        ("e", "e\u0301"),
        ("t", "t"),
        ("e", "e\u0301"),
        ("a", "À"),
        ("b", "B"),
        ("c", "c"),
        ("[UNK]", "😀x"),
    ]


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from(LETTERS + "ABZÀÉ ,.!\t\n\u0301\u0308"), max_size=40))
def test_offsets_follow_from_normalising_each_character_by_itself(characters: WordPieceTokenizer, text: str):
    # Every letter is a token and no word is long enough to be [UNK]; a mark belongs to the letter before it.
    expected: list[list] = []
    for place, character in enumerate(text):
        small = "".join(
            c for c in unicodedata.normalize("NFD", character.lower()) if unicodedata.category(c) != "Mn"
        )
        if small.strip():
            expected.append([small, place, place + 1])
        elif unicodedata.category(character) == "Mn" and expected and expected[-1][2] == place:
            expected[-1][2] = place + 1
    ids, offsets = characters.encode_with_offsets(text)
    pieces = [characters.piece(int(token)).removeprefix("##") for token in ids]
    assert [[p, *o] for p, o in zip(pieces, offsets.tolist(), strict=True)] == expected


def test_offsets_do_not_depend_on_where_a_long_text_is_cut(
    characters: WordPieceTokenizer, monkeypatch: pytest.MonkeyPatch
):
    text = "Línea uno\ny dos, e\u0301\nTRES\n" * 50
    _, whole = characters.encode_with_offsets(text)
    monkeypatch.setattr("mlm.data.tokenizers.wordpiece.PIECE_CHARACTERS", 20)
    _, cut = characters.encode_with_offsets(text)
    assert cut.tolist() == whole.tolist()


def test_a_tokenizer_that_keeps_no_track_says_so():
    with pytest.raises(DataError, match="does not tell where its tokens stand"):
        ByteTokenizer().encode_with_offsets("a")


@given(a=st.integers(0, 40), b=st.integers(0, 40), room=st.integers(2, 50))
def test_the_longer_text_loses_its_end_one_token_at_a_time(a: int, b: int, room: int):
    first, second = list(range(a)), list(range(100, 100 + b))
    found = cut_longer_first(np.asarray(first, np.int32), np.asarray(second, np.int32), room)
    while len(first) + len(second) > room:  # BERT's own loop
        (first if len(first) > len(second) else second).pop()
    assert [part.tolist() for part in found] == [first, second]


def test_pairs_are_sequences_with_segments_and_padding_that_is_not_real(words: WordPieceTokenizer):
    examples = [PairExample("a", "w1 w2", "w3", 1), PairExample("b", w(0, 9), w(20, 25), 0)]
    encoded = EncodedPairs(examples, words, limit=13)
    batch = encoded.batch([0, 1])
    assert text_of(words, batch.sequences.ids[0]) == "[CLS] w1 w2 [SEP] w3 [SEP]" + " [PAD]" * 7
    assert batch.sequences.segments[0].tolist() == [0] * 4 + [1] * 2 + [0] * 7
    assert batch.sequences.real[0].tolist() == [True] * 6 + [False] * 7
    assert text_of(words, batch.sequences.ids[1]) == f"[CLS] {w(0, 5)} [SEP] {w(20, 25)} [SEP]"
    assert batch.sequences.real[1].all()
    assert batch.targets.tolist() == [1, 0]
    assert encoded.cut == 1
    assert "1 of 2 pairs" in encoded.describe_cuts()


def test_an_option_fills_the_blank_or_follows_the_question():
    assert question_with_option("The word _ means __ .", "\\1 x") == "The word \\1 x means __ ."
    assert question_with_option("He is ____ _ .", "old") == "He is old ."
    assert question_with_option("Who?", "She") == "Who? She"


def test_a_long_passage_is_cut_and_question_and_option_are_kept_whole(words: WordPieceTokenizer):
    long, short = w(0, 100), w(0, 10)
    options = ("w190", "w191 w192", "w193", "w194")
    examples = [
        ChoiceExample("a", long, "w150 w151", options, 1),
        ChoiceExample("b", short, "w150 w151", options, 3),
        ChoiceExample("c", short, w(110, 150), options, 0),
    ]
    encoded = EncodedChoices(examples, words, limit=24)
    batch = encoded.batch([0, 1])
    rows = [
        text_of(words, row[real]) for row, real in zip(batch.sequences.ids, batch.sequences.real, strict=True)
    ]
    assert rows[0] == f"[CLS] {w(0, 18)} [SEP] w150 w151 w190 [SEP]"
    assert rows[1] == f"[CLS] {w(0, 17)} [SEP] w150 w151 w191 w192 [SEP]"
    assert rows[7] == f"[CLS] {short} [SEP] w150 w151 w194 [SEP]"
    assert batch.targets.tolist() == [1, 3]
    # Of a question without end the end is kept, where the option stands.
    last = encoded.sequence(2, 1)
    assert text_of(words, last.ids).endswith(f"[SEP] {w(142, 150)} w191 w192 [SEP]")
    assert (encoded.passages_cut, encoded.questions_cut) == (1, 1)


def test_a_tokenizer_without_control_tokens_is_refused():
    with pytest.raises(DataError, match=r"has no \[CLS\] and no \[SEP\] and no \[PAD\]"):
        EncodedPairs([PairExample("a", "b", "c", 0)], ByteTokenizer(), limit=10)

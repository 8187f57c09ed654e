"""Text from tokens: nothing is told too early, and what is told joins to the text of all tokens."""

from __future__ import annotations

import numpy as np
import pytest

from mlm.data.tokenizers import ByteTokenizer, Gpt2Tokenizer, SentencePieceTokenizer, Tokenizer
from mlm.generate.continuation import Continuation
from tests.unit.data.tokenizer_files import sentencepiece_model

TEXT = "naïve 日本語 🙂🙃 e\u0301 done.\n\nQ: and\u00a0more"


def told(tokenizer: Tokenizer, ids: list[int], prompt: str = "", stop: tuple[str, ...] = ()) -> list[str]:
    """The pieces in the order in which they are told, with that of the end."""
    pieces: list[str] = []
    continuation = Continuation(tokenizer, tokenizer.encode(prompt).tolist(), stop, pieces.append)
    for token in ids:
        if continuation(token):
            break
    assert continuation.finish() == "".join(pieces)
    return pieces


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return Gpt2Tokenizer()


def test_characters_of_several_tokens_are_told_whole(gpt2):
    for tokenizer in (ByteTokenizer(), gpt2):
        ids = tokenizer.encode(TEXT).tolist()
        pieces = told(tokenizer, ids, "before ")
        assert "".join(pieces) == TEXT
        assert not any("\ufffd" in piece for piece in pieces)
    assert len(told(ByteTokenizer(), ByteTokenizer().encode("🙂a").tolist())) == 2


def test_bytes_that_are_no_character_are_told_at_the_latest_at_the_end():
    tokenizer = ByteTokenizer()
    for ids in ([0xF0, 0x9F], [0xF0, 0x9F, 0x41], [0x80, 0x80, 0x80, 0x80, 0x80], [0x41, 0xC3, 0xC3, 0xB6]):
        pieces = told(tokenizer, ids)
        assert "".join(pieces) == tokenizer.decode(ids)
    # Five bytes that begin nothing: not all are held back.
    assert len(told(tokenizer, [0x80] * 5)) > 1


def test_any_bytes_give_the_text_that_they_decode_to_behind_any_prompt():
    tokenizer = ByteTokenizer()
    generator = np.random.default_rng(0)
    letters = np.array([*range(97, 103), 0x80, 0xC3, 0xE6, 0xF0, 0x9F, 0x99, 0x82, 256])
    for _ in range(60):
        ids = generator.choice(letters, size=150).tolist()
        ids = [token for token in ids if token != 256]
        assert "".join(told(tokenizer, ids, "prämpt")) == tokenizer.decode(ids)


def test_the_space_of_a_first_word_is_kept_though_its_tokenizer_drops_it_at_the_beginning(tmp_path):
    text = "the cat sat on the mat. " * 50
    options = {"add_dummy_prefix": True, "hard_vocab_limit": False, "vocab_size": 500}
    tokenizer = SentencePieceTokenizer(sentencepiece_model(tmp_path / "m.model", text, "unigram", **options))
    ids = tokenizer.encode("the cat sat on the mat").tolist()
    prompt = tokenizer.encode("the cat").tolist()
    assert ids[: len(prompt)] == prompt
    assert not tokenizer.decode(ids[len(prompt) :]).startswith(" ")
    assert "".join(told(tokenizer, ids[len(prompt) :], "the cat")) == " sat on the mat"
    # Long enough for the first tokens to be dropped from what is decoded.
    long = "the cat sat on the mat " * 40
    ids = tokenizer.encode(long).tolist()
    assert "".join(told(tokenizer, ids)) == tokenizer.decode(ids)


STOPS = [
    (("STOP",), "abc", "abcSTOPdef"),
    (("\n\n", "STOP"), "ab", "ab\n\ncSTOP"),
    (("STOP", "TO"), "abS", "abSTOP"),  # the one that is complete first
    (("STOP", "TOP"), "ab", "abSTOP"),
    (("aab",), "a", "aaab"),
    (("🙂x",), "a🙂", "a🙂🙂x"),
    (("STOP",), "abSTO", "abSTO"),
    (("STOP",), "STOOP", "STOOP"),
    (("a",), "", "abc"),
]


@pytest.mark.parametrize(("stop", "left", "text"), STOPS)
def test_a_stop_string_ends_the_text_across_tokens_and_no_part_of_it_is_told(stop, left, text, gpt2):
    for tokenizer in (ByteTokenizer(), gpt2):
        pieces = told(tokenizer, tokenizer.encode(text).tolist(), "prompt ends in ST", stop)
        assert "".join(pieces) == left


def test_a_stop_string_is_looked_for_behind_the_prompt_only():
    tokenizer = ByteTokenizer()
    assert "".join(told(tokenizer, tokenizer.encode("OP go on").tolist(), "ST", ("STOP",))) == "OP go on"

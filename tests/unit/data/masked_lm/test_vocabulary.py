"""Where words begin and what is control, for every way in which tokenizers write it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from mlm.data.masked_lm.vocabulary import Vocabulary, word_starts
from mlm.data.tokenizers import ByteTokenizer, Gpt2Tokenizer, Tokenizer, WordPieceTokenizer, parse_tokenizer
from mlm.errors import DataError

TEXT = "The hippopotamuses sang, unbelievably loudly"


def words_of(tokenizer: Tokenizer, text: str = TEXT) -> list[str]:
    ids = tokenizer.encode(text)
    starts = word_starts([tokenizer.piece(token) for token in range(tokenizer.vocab_size)])
    borders = [0, *(np.flatnonzero(starts[ids][1:]) + 1).tolist(), len(ids)]
    return [tokenizer.decode(ids[a:b]) for a, b in itertools.pairwise(borders)]


def test_words_of_wordpiece_are_those_of_its_basic_tokenizer():
    assert words_of(WordPieceTokenizer()) == ["the", "hippopotamuses", "sang", ",", "unbelievably", "loudly"]
    # Of Chinese characters each is a word, and one that it does not know is [UNK].
    assert words_of(WordPieceTokenizer(), "大学 Zürich") == ["大", "学", "zurich"]


@pytest.mark.parametrize("make", [Gpt2Tokenizer, ByteTokenizer])
def test_words_of_other_tokenizers_begin_with_their_space(make: type[Tokenizer]):
    assert words_of(make()) == ["The", " hippopotamuses", " sang,", " unbelievably", " loudly"]


@pytest.mark.parametrize("name", ["sentencepiece", "sentencepiece_bpe", "hf_bytes"])
def test_words_of_trained_tokenizers_begin_with_their_space(tokenizer_files: dict[str, Path], name: str):
    tokenizer = parse_tokenizer(str(tokenizer_files[name]))
    assert words_of(tokenizer) == ["The", " hippopotamuses", " sang,", " unbelievably", " loudly"]


def test_in_writing_without_spaces_every_token_is_a_word():
    assert word_starts(["猫", "である", "ー", "▁the", "re", "กำ"]).tolist() == [
        True,
        True,
        True,
        True,
        False,
        True,
    ]


def test_berts_control_tokens_are_neither_masked_nor_drawn():
    vocabulary = Vocabulary.of(WordPieceTokenizer())
    assert (vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (0, 101, 102, 103)
    # [PAD], [unused0] to [unused993], [UNK], [CLS], [SEP], [MASK].
    assert vocabulary.control.sum() == 5 + 994
    assert len(vocabulary.ordinary) == 30_522 - 999
    assert not vocabulary.control[vocabulary.ordinary].any()


def test_a_tokenizer_without_them_is_no_vocabulary_for_masking():
    with pytest.raises(DataError, match=r"tokenizer.kind=gpt2 has no \[MASK\]"):
        Vocabulary.of(Gpt2Tokenizer())

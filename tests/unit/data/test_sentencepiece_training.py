from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlm.data import sentencepiece_training
from mlm.data.sentencepiece_training import train
from mlm.data.tokenizers import SentencePieceTokenizer
from mlm.errors import DataError


def test_the_same_text_gives_the_same_bytes(tmp_path: Path, shakespeare: str, trained_model: Path):
    train(shakespeare[:100_000], 600, tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == trained_model.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.model"]


def test_a_newline_is_one_piece_and_eod_is_no_text(trained_model: Path):
    tokenizer = SentencePieceTokenizer(trained_model)
    assert tokenizer.vocab_size == 600
    (newline,) = tokenizer.encode("\n")
    assert tokenizer.encode("a\n\nb").tolist().count(newline) == 2
    assert tokenizer.eod is not None
    assert tokenizer.decode([tokenizer.eod]) == ""


def test_training_writes_nothing_to_the_terminal(
    tmp_path: Path, shakespeare: str, capfd: pytest.CaptureFixture[str]
):
    train(shakespeare[:20_000], 400, tmp_path / "quiet.model")
    with pytest.raises(DataError):
        train(shakespeare[:20_000], 50_000, tmp_path / "loud.model")
    assert capfd.readouterr() == ("", "")


def test_a_vocabulary_too_large_is_refused_with_the_largest_that_works(tmp_path: Path, shakespeare: str):
    text, out = shakespeare[:20_000], tmp_path / "tokenizer.model"
    with pytest.raises(DataError, match="too large for this text") as error:
        train(text, 50_000, out)
    assert not out.exists()
    largest = re.search(r"tokenizer\.vocab_size=(\d+)", str(error.value))
    assert largest
    train(text, int(largest[1]), out)
    assert SentencePieceTokenizer(out).vocab_size == int(largest[1])
    with pytest.raises(DataError, match="too large"):
        train(text, int(largest[1]) + 1, out)


def test_a_vocabulary_too_small_is_refused_with_one_that_works(tmp_path: Path, shakespeare: str):
    with pytest.raises(DataError, match="too small for this text") as error:
        train(shakespeare[:20_000], 100, tmp_path / "tokenizer.model")
    enough = re.search(r"tokenizer\.vocab_size=(\d+)", str(error.value))
    assert enough
    train(shakespeare[:20_000], int(enough[1]), tmp_path / "tokenizer.model")


def test_more_characters_than_pieces_still_come_back_through_bytes(tmp_path: Path, shakespeare: str):
    many = "".join(chr(code) for code in range(0x4E00, 0x4E00 + 400))
    train(shakespeare[:50_000] + many, 500, tmp_path / "tokenizer.model")
    tokenizer = SentencePieceTokenizer(tmp_path / "tokenizer.model")
    assert tokenizer.decode(tokenizer.encode(many)) == many


def test_a_line_of_any_length_takes_part_in_training(tmp_path: Path, shakespeare: str):
    train(shakespeare[:100_000].replace("\n", " "), 600, tmp_path / "tokenizer.model")
    tokenizer = SentencePieceTokenizer(tmp_path / "tokenizer.model")
    assert len(tokenizer.encode(" the king")) < len(" the king") / 2


def test_of_a_text_past_the_limit_lines_from_all_over_it_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sentencepiece_training, "TRAINING_CHARACTERS", 300)
    text = "\n".join(f"line {i:04d}" for i in range(100))
    lines = list(sentencepiece_training._lines(text))
    assert sum(map(len, lines)) <= 300
    assert (lines[0], lines[-1][:7]) == ("line 0000", "line 00")
    assert int(lines[-1][5:]) > 90

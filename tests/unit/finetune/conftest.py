"""A WordPiece vocabulary of single characters, with which every token's place is known by counting."""

from __future__ import annotations

import string
from pathlib import Path

import pytest

from mlm.data.tokenizers import WordPieceTokenizer

CONTROLS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = string.ascii_lowercase + string.digits + "東京ßμ"


@pytest.fixture(scope="session")
def characters(tmp_path_factory: pytest.TempPathFactory) -> WordPieceTokenizer:
    """Uncased; a word is its letters, punctuation stands by itself, other words are [UNK]."""
    path: Path = tmp_path_factory.mktemp("characters") / "vocab.txt"
    tokens = [*CONTROLS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *string.punctuation]
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return WordPieceTokenizer(path)


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> WordPieceTokenizer:
    """w0 to w199, each one token: a text's length in tokens is that in words."""
    path: Path = tmp_path_factory.mktemp("words") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in [*CONTROLS, *(f"w{n}" for n in range(200))]))
    return WordPieceTokenizer(path)


@pytest.fixture(scope="session")
def bert_vocabulary() -> WordPieceTokenizer:
    """BERT's own, uncased."""
    return WordPieceTokenizer()

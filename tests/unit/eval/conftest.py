"""Fixtures of the evaluation tests: tokenizers, and the published files where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlm.data.sentencepiece_training import train
from mlm.data.text import EMBEDDED_PATH
from mlm.data.tokenizers import Gpt2Tokenizer, SentencePieceTokenizer


@pytest.fixture(scope="session")
def gpt2() -> Gpt2Tokenizer:
    return Gpt2Tokenizer()


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    """600 pieces, trained on the beginning of the embedded text."""
    path = tmp_path_factory.mktemp("trained") / "tokenizer.model"
    train(EMBEDDED_PATH.read_bytes().decode()[:100_000], 600, path)
    return SentencePieceTokenizer(path)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the test files of WikiText103 and LAMBADA, which is $MLM_DATA too."""
    folder = Path(os.environ.get("MLM_TEST_DATA", "/nowhere"))
    if not (folder / "wikitext103").is_dir() or not (folder / "lambada").is_dir():
        pytest.skip("set MLM_TEST_DATA to a folder with wikitext103/, wikitext-raw/ and lambada/")
    monkeypatch.setenv("MLM_DATA", str(folder))
    return folder

"""Fixtures of the data tests: token files packed by hand, a trained tokenizer, and the optional test data."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlm.data.sentencepiece_training import train
from mlm.data.text import EMBEDDED_PATH
from tests.unit.data.index_by_hand import CODE_OF, pack_index
from tests.unit.data.tokenizer_files import write_all


@pytest.fixture
def write_by_hand(tmp_path: Path) -> Callable[..., Path]:
    """Writes sequences of ids as PREFIX.bin and PREFIX.idx with struct alone; returns PREFIX."""

    def write(
        sequences: Sequence[Sequence[int]],
        letter: str = "H",
        documents: Sequence[int] | None = None,
        name: str = "made",
    ) -> Path:
        prefix = tmp_path / name
        raw = b"".join(struct.pack(f"<{len(ids)}{letter}", *ids) for ids in sequences)
        prefix.with_name(name + ".bin").write_bytes(raw)
        index = pack_index(
            CODE_OF[letter], struct.calcsize("<" + letter), [len(ids) for ids in sequences], documents
        )
        prefix.with_name(name + ".idx").write_bytes(index)
        return prefix

    return write


@pytest.fixture(scope="session")
def shakespeare() -> str:
    return EMBEDDED_PATH.read_bytes().decode()


@pytest.fixture(scope="session")
def trained_model(tmp_path_factory: pytest.TempPathFactory, shakespeare: str) -> Path:
    """A SentencePiece model of 600 pieces, trained on the beginning of the embedded text."""
    path = tmp_path_factory.mktemp("trained") / "tokenizer.model"
    train(shakespeare[:100_000], 600, path)
    return path


@pytest.fixture(scope="session")
def tokenizer_files(tmp_path_factory: pytest.TempPathFactory, shakespeare: str) -> dict[str, Path]:
    """A small file of each kind of tokenizer, by name."""
    return write_all(tmp_path_factory.mktemp("tokenizers"), shakespeare[:60_000])


@pytest.fixture(scope="session")
def test_data() -> Path:
    folder = os.environ.get("MLM_TEST_DATA")
    if not folder:
        pytest.skip(
            "MLM_TEST_DATA is not set: it names a folder with classics/, sentencepiece/, wikitext103/"
        )
    return Path(folder)

"""Tokenizers that are files, in a training run: the ids, the cache, and the description that workers load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data import prepare
from mlm.data.prepare import PreparedData, prepare_data
from mlm.data.tokenizers import load_tokenizer, parse_tokenizer
from mlm.errors import DataError
from tests.unit.data.tokenizer_texts import AWKWARD, JAPANESE

FILES = {"gpt2_pair": "gpt2", "sentencepiece": "sentencepiece", "wordpiece": "wordpiece", "hf_bytes": "hf"}
TEXT = (JAPANESE + "the king and the night\n") * 30


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def prepared(text_file: Path, kind: str, path: Path, said: list[str] | None = None) -> PreparedData:
    return prepare_data(
        DataConfig(name="test", path=str(text_file), split=[9, 1, 0]),
        TokenizerConfig(kind=kind, path=str(path)),
        1000,
        32,
        ([] if said is None else said).append,
    )


@pytest.mark.parametrize(("name", "kind"), FILES.items())
def test_a_text_is_encoded_with_the_file_and_workers_load_the_same(
    name: str, kind: str, text_file: Path, tokenizer_files: dict[str, Path]
):
    path = tokenizer_files[name]
    data = prepared(text_file, kind, path)
    tokenizer = parse_tokenizer(f"{kind}:{path}")
    assert data.tokenizer == tokenizer.describe()
    assert data.tokens["train"] == len(tokenizer.encode(TEXT[: round(0.9 * len(TEXT))]))
    loaded = load_tokenizer(data.tokenizer)
    for text in AWKWARD:
        assert loaded.encode(text).tolist() == tokenizer.encode(text).tolist()


@pytest.mark.parametrize(("name", "kind"), FILES.items())
def test_an_equal_file_elsewhere_shares_the_encoded_text_and_another_does_not(
    name: str,
    kind: str,
    text_file: Path,
    tokenizer_files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
):
    path = tokenizer_files[name]
    first = prepared(text_file, kind, path)
    copy = tmp_path / "copy"
    if path.is_dir():
        copy.mkdir()
        for file in path.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
    else:
        copy.write_bytes(path.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "build", lambda *_: pytest.fail("a tokenizer was loaded"))
        second = prepared(text_file, kind, copy)
    assert second.fingerprint == first.fingerprint
    assert second.tokenizer == {**first.tokenizer, "path": str(copy)}
    assert len(list(cache.iterdir())) == 1

    changed = copy / "vocab.json" if copy.is_dir() else copy
    if kind == "sentencepiece":
        changed.write_bytes(tokenizer_files["sentencepiece_bpe"].read_bytes())
    elif kind == "wordpiece":
        changed.write_text(changed.read_text(encoding="utf-8") + "##thing\n", encoding="utf-8")
    else:
        changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(DataError, match="has changed"):
        load_tokenizer(second.tokenizer)
    prepared(text_file, kind, copy)
    assert len(list(cache.iterdir())) == 2


def test_what_a_tokenizer_does_not_give_back_is_said(text_file: Path, tokenizer_files: dict[str, Path]):
    said: list[str] = []
    prepared(text_file, "wordpiece", tokenizer_files["wordpiece"], said)
    assert any(
        "wordpiece (uncased)" in line and "does not give the text back exactly" in line for line in said
    )
    said.clear()
    prepared(text_file, "hf", tokenizer_files["hf_bytes"], said)
    assert not any("does not give" in line for line in said)

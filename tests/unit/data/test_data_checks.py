from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data.checks import problems


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def found(
    kind: str = "byte",
    data_path: str | Path | None = None,
    vocab: int = 50_257,
    seq_length: int = 64,
    split: list[float] | None = None,
    **tokenizer: Any,
) -> str:
    data = DataConfig(
        name="test", path=None if data_path is None else str(data_path), split=split or [90, 10, 0]
    )
    return "\n".join(
        str(p) for p in problems(data, TokenizerConfig(kind=kind, **tokenizer), vocab, seq_length)
    )


@pytest.mark.parametrize("kind", ["gpt2", "sentencepiece", "char", "byte"])
def test_the_embedded_text_with_any_tokenizer_is_no_problem_and_nothing_is_written(kind: str, cache: Path):
    assert found(kind) == ""
    assert not cache.exists()


@pytest.mark.parametrize(
    ("kind", "vocab", "least"), [("gpt2", 50_256, "50,257"), ("byte", 256, "257"), ("char", 64, "65")]
)
def test_a_vocabulary_one_too_small_is_refused_with_the_number_that_works(kind: str, vocab: int, least: str):
    said = found(kind, vocab=vocab)
    assert f"model.vocab_size={vocab} is less than the {least} tokens" in said
    assert f"use model.vocab_size={least.replace(',', '')}" in said
    assert found(kind, vocab=vocab + 1) == ""


@pytest.mark.parametrize(
    ("typed", "meant"), [("sentence_piece", "sentencepiece"), ("gpt-2", "gpt2"), ("bytes", "byte")]
)
def test_a_mistyped_tokenizer_is_answered_with_the_nearest(typed: str, meant: str):
    assert f"did you mean {meant}?" in found(typed)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"kind": "gpt2", "path": "x.model"}, "tokenizer.path=x.model means nothing to a gpt2 tokenizer"),
        ({"kind": "char", "vocab_size": 65}, "tokenizer.vocab_size=65 means nothing to a char tokenizer"),
        ({"kind": "sentencepiece", "path": "/no/such.model"}, "tokenizer.path=/no/such.model is no file"),
        ({"kind": "sentencepiece", "vocab_size": 0}, "tokenizer.vocab_size=0 is not positive"),
        (
            {"kind": "sentencepiece", "vocab_size": 60_000},
            "less than the 60,000 tokens of the tokenizer to be",
        ),
        ({"kind": "sentencepiece", "vocab_size": 9, "path": "/no"}, "leave one of the two out"),
    ],
)
def test_a_tokenizer_setting_that_cannot_be_meant_is_refused(tokenizer: dict[str, Any], message: str):
    assert message in found(**tokenizer)


def test_token_ids_give_no_alphabet_and_no_text_to_train_on(write_by_hand: Callable[..., Path]):
    prefix = write_by_hand([[1] * 5000])
    assert "tokenizer.kind=char takes its alphabet from a text" in found("char", prefix)
    assert "give the .model file that made them as tokenizer.path" in found("sentencepiece", prefix)
    assert found("byte", prefix) == ""


def test_a_missing_dataset_is_answered_with_what_is_there(write_by_hand: Callable[..., Path], tmp_path: Path):
    write_by_hand([[1] * 5000], name="wiki_text_document")
    missing = found(data_path=tmp_path / "wiki_text_dokument")
    assert "no such dataset (wiki_text_dokument.bin, wiki_text_dokument.idx)" in missing
    assert f"did you mean {tmp_path / 'wiki_text_document'}?" in missing
    assert "leave the .bin out" in found(data_path=tmp_path / "wiki_text_document.bin")
    (tmp_path / "wiki_text_document.bin").unlink()
    assert "(wiki_text_document.bin)" in found(data_path=tmp_path / "wiki_text_document")


@pytest.mark.parametrize("kind", ["gpt2", "byte", "char", "sentencepiece"])
def test_of_a_missing_dataset_nothing_else_is_said(kind: str, tmp_path: Path):
    data = DataConfig(name="d", path=str(tmp_path / "missing"), split=[90, 10, 0])
    (problem,) = problems(data, TokenizerConfig(kind=kind), 50257, 16)
    assert "no such dataset (missing.bin, missing.idx)" in str(problem)


def test_a_file_of_another_kind_is_not_taken_for_data(tmp_path: Path):
    (tmp_path / "data.jsonl").write_text('{"text": "x"}')
    assert "a text has to be called .txt" in found(data_path=tmp_path / "data.jsonl")
    assert "No such file" in found(data_path=tmp_path / "absent.txt")
    assert "Is a directory" in found(data_path=_folder(tmp_path / "folder.txt"))
    (tmp_path / "blank.txt").write_text(" \n\n")
    assert "holds no text" in found(data_path=tmp_path / "blank.txt")


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_truncated_dataset_and_a_split_without_a_sample_are_found(write_by_hand: Callable[..., Path]):
    prefix = write_by_hand([[1] * 100] * 10)
    assert "leaves 0 documents, 0 tokens, to valid" in found(data_path=prefix, split=[969, 30, 1])
    assert "use data.split=[9,1,0]" in found(data_path=prefix, split=[969, 30, 1])
    assert found(data_path=prefix, split=[9, 1, 0]) == ""
    with open(prefix.with_name("made.bin"), "r+b") as file:
        file.truncate(1000)
    assert "is 1,000 bytes, but made.idx describes 2,000 bytes" in found(data_path=prefix)


def test_a_cache_in_an_impossible_place_is_found(cache: Path):
    cache.write_text("a file")
    assert "set data.cache_dir or MLM_CACHE" in found()


def test_all_problems_are_found_at_once(cache: Path, tmp_path: Path):
    cache.write_text("a file")
    said = found("gpt2", tmp_path / "absent.txt", vocab=10, split=[-1, 1])
    for part in ("model.vocab_size=10", "data.split=[-1,1]", "absent.txt", "the cache"):
        assert part in said

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlm.config.schema import BlendPart, DataConfig, TokenizerConfig
from mlm.data.checks import problems
from mlm.data.metadata import write_metadata
from mlm.data.tokenizers import ByteTokenizer, parse_tokenizer


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
        ({"kind": "byte", "path": "x.model"}, "tokenizer.path=x.model means nothing to a byte tokenizer"),
        ({"kind": "gpt2", "path": "/no"}, "tokenizer.path=/no holds no vocab.json and no merges.txt"),
        ({"kind": "hf", "path": "/no.json"}, "tokenizer.path=/no.json cannot be read (No such file"),
        ({"kind": "wordpiece", "path": "/no.txt"}, "tokenizer.path=/no.txt cannot be read (No such file"),
        ({"kind": "hf"}, "a hf tokenizer is in a file: give a tokenizer.json"),
        ({"kind": "hf", "vocab_size": 9, "path": "/no"}, "tokenizer.vocab_size=9 means nothing to a hf"),
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


@pytest.mark.parametrize(
    ("kind", "name"),
    [("gpt2", "gpt2_pair"), ("wordpiece", "wordpiece"), ("hf", "hf_bytes"), ("hf", "hf_unigram")],
)
def test_a_tokenizers_file_says_its_size_before_it_is_loaded(
    kind: str, name: str, tokenizer_files: dict[str, Path]
):
    path = str(tokenizer_files[name])
    size = parse_tokenizer(path).vocab_size
    assert found(kind, vocab=size, path=path) == ""
    said = found(kind, vocab=size - 1, path=path)
    assert f"model.vocab_size={size - 1} is less than the {size:,} tokens of the {kind} tokenizer" in said
    assert f"use model.vocab_size={size}" in said


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


def blended(*parts: tuple[float, str | Path], path: str | None = None, kind: str = "byte") -> str:
    blend = [BlendPart(weight=weight, path=str(prefix)) for weight, prefix in parts]
    data = DataConfig(name="test", path=path, blend=blend, split=[90, 10, 0])
    return "\n".join(str(p) for p in problems(data, TokenizerConfig(kind=kind), 50_257, 64))


def test_everything_wrong_with_a_blend_is_said_at_once(write_by_hand: Callable[..., Path], tmp_path: Path):
    good, short = write_by_hand([[1] * 100] * 10), write_by_hand([[1] * 30] * 2, name="short")
    assert blended((0.3, good), (0.7, good)) == ""
    said = blended((0.3, good), (-1, short), (1, tmp_path / "absent"), path="/x")
    assert "data.path=/x is given beside data.blend" in said
    assert "data.blend[1].weight=-1 is negative" in said
    assert f"tokens, to train of {short}, and one sample takes 65" in said
    assert f"data.blend[2].path={tmp_path / 'absent'} no such dataset (absent.bin, absent.idx)" in said
    assert "data.blend names no dataset" in blended()
    assert "weight 0" in blended((0, good), (0, good))


def test_a_dataset_of_weight_zero_has_to_be_there_and_may_be_short(
    write_by_hand: Callable[..., Path], tmp_path: Path
):
    good, short = write_by_hand([[1] * 100] * 10), write_by_hand([[1] * 30] * 2, name="short")
    assert blended((1, good), (0, short)) == ""
    assert "no such dataset" in blended((1, good), (0, tmp_path / "absent"))


def test_a_dataset_of_another_tokenizer_is_refused_with_the_choice_that_fits(
    write_by_hand: Callable[..., Path],
):
    prefix = write_by_hand([[1] * 100] * 10)
    write_metadata(prefix, {"tokenizer": ByteTokenizer().describe()})
    split = [90, 10, 0]
    assert found("byte", prefix, split=split) == ""
    said = found("gpt2", prefix, split=split)
    assert "was encoded with byte, 257 tokens" in said
    assert "the run's tokenizer is gpt2, 50,257 tokens" in said
    assert "use tokenizer=byte, or encode the text again" in said
    assert "data.blend[1].path" in blended(
        (1, write_by_hand([[1] * 100] * 10, name="b")), (1, prefix), kind="gpt2"
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [("[1]", "is no JSON object"), ('{"format": 2}', "is of format 2"), ("{", "is no JSON object")],
)
def test_a_record_that_cannot_be_read_is_refused(
    write_by_hand: Callable[..., Path], record: str, message: str
):
    prefix = write_by_hand([[1] * 100] * 10)
    prefix.with_name("made.json").write_text(record)
    assert message in found("byte", prefix)


@pytest.mark.parametrize("name", ["reset_positions", "reset_attention"])
def test_resets_are_refused_for_a_text_which_is_one_document(name: str):
    data = DataConfig(name="test", split=[90, 10, 0], **{name: True})
    (problem,) = problems(data, TokenizerConfig(kind="byte"), 257, 64)
    assert str(problem).startswith(f"data.{name}=true is for documents that are packed together")

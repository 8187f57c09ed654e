from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data import prepare, scan
from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.data.prepare import PreparedData, prepare_data
from mlm.data.tokenizers import Gpt2Tokenizer, load_tokenizer
from mlm.errors import ConfigError, DataError
from tests.unit.data.index_by_hand import pack_index

SPLIT = [90.0, 10.0, 0.0]
SMALLEST = {"gpt2": 50_257, "sentencepiece": 600, "char": 65, "byte": 257}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def text_file(tmp_path: Path, shakespeare: str) -> Path:
    path = tmp_path / "beginning.txt"
    path.write_bytes(shakespeare[:60_000].encode())
    return path


def prepared(
    data_path: Path | str | None = None,
    kind: str = "char",
    model_vocab_size: int | None = None,
    seq_length: int = 64,
    split: list[float] | None = None,
    said: list[str] | None = None,
    **tokenizer: Any,
) -> PreparedData:
    return prepare_data(
        DataConfig(name="test", path=None if data_path is None else str(data_path), split=split or SPLIT),
        TokenizerConfig(kind=kind, **tokenizer),
        model_vocab_size or SMALLEST[kind],
        seq_length,
        (said if said is not None else []).append,
    )


def decoded(data: PreparedData, name: str) -> str:
    start, stop = data.ranges[name]
    return load_tokenizer(data.tokenizer).decode(IndexedDataset(data.prefix).tokens[start:stop])


def test_the_embedded_text_in_characters_is_nanogpts_data(shakespeare: str):
    data = prepared()
    assert data.tokens == data.characters == {"train": 1_003_854, "valid": 111_540, "test": 0}
    assert data.documents == {"train": 1, "valid": 1, "test": 0}
    place = {character: i for i, character in enumerate(sorted(set(shakespeare)))}
    assert IndexedDataset(data.prefix).tokens.tolist() == [place[c] for c in shakespeare]
    assert data.valid_characters_scored == 111_539
    assert data.valid_characters_per_token == 1
    assert data.embedded
    assert data.ln_vocab == math.log(65)
    assert data.entropies is not None
    assert {name: round(value, 2) for name, value in data.entropies.items()} == {
        "alphabet": 4.17,
        "unigram": 3.31,
        "bigram": 2.45,
        "trigram": 1.91,
    }


@pytest.mark.parametrize("kind", ["gpt2", "sentencepiece", "char", "byte"])
def test_each_split_is_encoded_by_itself_and_gives_its_text_back(
    kind: str, text_file: Path, shakespeare: str
):
    data = prepared(text_file, kind)
    text = shakespeare[:60_000]
    assert decoded(data, "train") == text[:54_000]
    assert decoded(data, "valid") == text[54_000:]
    assert data.characters == {"train": 54_000, "valid": 6_000, "test": 0}
    assert sum(data.tokens.values()) == len(IndexedDataset(data.prefix).tokens)
    first = IndexedDataset(data.prefix).tokens[data.ranges["valid"][0]]
    unscored = load_tokenizer(data.tokenizer).decode([first])
    assert data.valid_characters_scored == 6_000 - len(unscored)
    assert data.valid_characters_per_token == data.valid_characters_scored / (data.tokens["valid"] - 1)
    assert data.tokenizer["vocab_size"] == (len(set(text)) if kind == "char" else SMALLEST[kind])


def test_a_first_byte_that_is_no_character_leaves_all_characters_scored(tmp_path: Path):
    path = tmp_path / "greek.txt"
    path.write_text("αβγδ" * 100, encoding="utf-8")
    data = prepared(path, "byte", split=[1, 1])
    assert data.tokens["valid"] == 400
    assert data.valid_characters_scored == 200


@pytest.mark.parametrize("kind", ["gpt2", "sentencepiece", "char", "byte"])
def test_the_second_time_nothing_is_encoded(
    kind: str, text_file: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
):
    said: list[str] = []
    first = prepared(text_file, kind, said=said)
    assert any("60,000 characters" in line for line in said)
    monkeypatch.setattr(prepare, "build", lambda *_: pytest.fail("a tokenizer was loaded"))
    monkeypatch.setattr(prepare, "train", lambda *_: pytest.fail("a tokenizer was trained"))
    said.clear()
    assert prepared(text_file, kind, said=said) == first
    assert said == []
    assert len(list(cache.iterdir())) == 1


def test_the_second_process_answers_without_the_tokenizer_libraries(text_file: Path):
    prepared(text_file, "sentencepiece")
    code = (
        "import sys; from mlm.config.schema import *; from mlm.data.prepare import prepare_data;"
        f"prepare_data(DataConfig(name='', path={str(text_file)!r}, split=[90, 10, 0]),"
        "TokenizerConfig(kind='sentencepiece'), 600, 64, print);"
        "print(sorted({'torch', 'tokenizers', 'sentencepiece'} & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert shown.stdout == "[]\n"


def test_another_text_split_tokenizer_or_vocabulary_is_another_entry(text_file: Path, tmp_path: Path):
    other = tmp_path / "other.txt"
    other.write_bytes(text_file.read_bytes() + b"!")
    all_of_them = [
        prepared(text_file, "sentencepiece"),
        prepared(text_file, "sentencepiece", 500),
        prepared(text_file, "sentencepiece", vocab_size=450),
        prepared(text_file, "sentencepiece", split=[80, 20, 0]),
        prepared(text_file, "byte"),
        prepared(other, "byte"),
    ]
    assert len({data.prefix for data in all_of_them}) == len(all_of_them)
    assert len({data.fingerprint for data in all_of_them}) == len(all_of_them)
    assert [data.tokenizer["vocab_size"] for data in all_of_them[:3]] == [600, 500, 450]


def test_the_same_text_elsewhere_has_the_same_fingerprint(text_file: Path, tmp_path: Path):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(text_file.read_bytes())
    assert prepared(copy).fingerprint == prepared(text_file).fingerprint
    assert prepared(copy).source == str(copy)


@pytest.mark.parametrize("file", ["text.bin", "text.idx", "tokenizer.model", "info.json"])
def test_a_damaged_cache_heals(file: str, text_file: Path):
    first = prepared(text_file, "sentencepiece")
    damaged = Path(first.prefix).with_name(file)
    raw = damaged.read_bytes()
    damaged.write_bytes(raw[:-7])
    said: list[str] = []
    assert prepared(text_file, "sentencepiece", said=said) == first
    assert said
    assert damaged.read_bytes() == raw


def test_processes_that_prepare_at_once_agree(text_file: Path, cache: Path):
    code = (
        "import sys; from mlm.config.schema import *; from mlm.data.prepare import prepare_data;"
        f"print(prepare_data(DataConfig(name='', path={str(text_file)!r}, split=[90, 10, 0]),"
        "TokenizerConfig(kind='sentencepiece'), 600, 64, lambda line: None).to_json())"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert answers[0] == answers[1]
    assert len(list(cache.iterdir())) == 1


def test_json_gives_the_same_object(text_file: Path):
    data = prepared(text_file, "char")
    assert PreparedData.from_json(data.to_json()) == data
    assert json.loads(data.to_json())["tokenizer"]["kind"] == "char"


def test_a_foreign_model_that_changes_the_text_is_said(test_data: Path):
    said: list[str] = []
    path, model = (
        test_data / "sentencepiece" / "botchan.txt",
        test_data / "sentencepiece" / "test_model.model",
    )
    data = prepared(path, "sentencepiece", 1000, path=str(model), said=said)
    assert any("does not give the text back exactly" in line for line in said)
    assert data.tokenizer["path"] == str(model)
    assert data.characters is not None
    assert sum(data.characters.values()) == len(path.read_bytes().decode())


def test_a_byte_that_is_no_utf8_is_named_with_its_offset(tmp_path: Path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xc3\xa9 and caf\xe9 \n")
    with pytest.raises(ConfigError, match="is not UTF-8: 0xe9 at byte offset 13"):
        prepared(path)


def test_a_text_shorter_than_one_sample_is_refused_with_a_seq_length_that_works(tmp_path: Path):
    path = tmp_path / "short.txt"
    path.write_text("0123456789" * 20)
    with pytest.raises(
        DataError, match=r"20 tokens, to valid, and one sample takes 65.*model\.seq_length=19 "
    ):
        prepared(path)
    assert prepared(path, seq_length=19).valid_samples == 1
    assert prepared(path, split=[1]).valid_samples == 0


def test_an_alphabet_larger_than_the_model_is_refused_in_numbers(text_file: Path):
    with pytest.raises(
        ConfigError, match=r"model\.vocab_size=40 is less than the 5\d tokens of the text's alphabet"
    ):
        prepared(text_file, "char", 40)


def test_a_cached_tokenizer_larger_than_the_model_is_refused_too(text_file: Path, trained_model: Path):
    prepared(text_file, "sentencepiece", 600, path=str(trained_model))
    with pytest.raises(ConfigError, match=r"model\.vocab_size=599 is less than the 600 tokens"):
        prepared(text_file, "sentencepiece", 599, path=str(trained_model))


def test_a_vocabulary_the_text_cannot_fill_is_refused_with_the_largest(text_file: Path):
    with pytest.raises(DataError, match=r"too large for this text.*use tokenizer\.vocab_size=\d+ or less"):
        prepared(text_file, "sentencepiece", 50_257)


def test_a_cache_that_cannot_be_written_is_refused_with_the_remedy(text_file: Path, cache: Path):
    cache.write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match=r"the cache .* set data\.cache_dir or MLM_CACHE"):
        prepared(text_file)


@pytest.fixture
def gpt2_dataset(tmp_path: Path, shakespeare: str) -> Path:
    """The first speeches of the embedded text, one document each, in GPT-2's ids."""
    tokenizer = Gpt2Tokenizer()
    with IndexedWriter(tmp_path / "speeches_text_document", 50_257) as writer:
        for speech in shakespeare[:20_000].split("\n\n"):
            writer.add_document([*tokenizer.encode(speech), tokenizer.eod])
    return tmp_path / "speeches_text_document"


def test_a_token_dataset_is_used_where_it_lies(gpt2_dataset: Path, shakespeare: str):
    data = prepared(gpt2_dataset, "gpt2")
    speeches = shakespeare[:20_000].split("\n\n")
    assert data.prefix == str(gpt2_dataset)
    train = round(len(speeches) * 0.9)
    assert data.documents == {"train": train, "valid": len(speeches) - train, "test": 0}
    assert decoded(data, "valid") == "".join(speeches[train:])
    assert (data.characters, data.entropies, data.valid_characters_scored) == (None, None, None)
    assert data.samples_per_epoch > 0
    assert PreparedData.from_json(data.to_json()) == data


def test_a_token_dataset_is_scanned_once(gpt2_dataset: Path, monkeypatch: pytest.MonkeyPatch):
    first = prepared(gpt2_dataset, "gpt2")
    monkeypatch.setattr(scan, "scan", lambda *_: pytest.fail("scanned again"))
    assert prepared(gpt2_dataset, "gpt2") == first


def test_other_ids_or_other_cuts_have_another_fingerprint(gpt2_dataset: Path):
    first, resplit = prepared(gpt2_dataset, "gpt2"), prepared(gpt2_dataset, "gpt2", split=[80, 20])
    raw = bytearray(gpt2_dataset.with_name(gpt2_dataset.name + ".bin").read_bytes())
    raw[0] ^= 1
    gpt2_dataset.with_name(gpt2_dataset.name + ".bin").write_bytes(raw)
    os.utime(gpt2_dataset.with_name(gpt2_dataset.name + ".bin"), ns=(1, time.time_ns()))
    changed = prepared(gpt2_dataset, "gpt2")
    assert len({first.fingerprint, resplit.fingerprint, changed.fingerprint}) == 3


def test_an_id_beyond_the_models_vocabulary_is_found_wherever_it_is(write_by_hand: Callable[..., Path]):
    ids = np.random.default_rng(0).integers(0, 257, 5000).tolist()
    ids[4321] = 300
    prefix = write_by_hand([ids])
    with pytest.raises(ConfigError) as error:
        prepared(prefix, "byte", 257)
    assert "holds token id 300 (at position 4,321), outside model.vocab_size=257" in str(error.value)
    assert "use model.vocab_size=301 or more" in str(error.value)
    assert prepared(prefix, "byte", 301).tokens["train"] == 4500


def test_a_negative_id_is_found(write_by_hand: Callable[..., Path]):
    with pytest.raises(ConfigError, match=r"holds token id -1 \(at position 150\)"):
        prepared(write_by_hand([[1] * 150 + [-1] + [2] * 2000], "i"), "byte")


def test_an_index_out_of_order_is_found_before_training(write_by_hand: Callable[..., Path]):
    prefix = write_by_hand([[1] * 400, [2] * 400, [3] * 400])
    prefix.with_name("made.idx").write_bytes(pack_index(8, 2, [400] * 3, pointers=[0, 900, 1600]))
    with pytest.raises(DataError, match="places sequence 1 at byte 900"):
        prepared(prefix, "byte", split=[1, 1])

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from mlm.cli.data.main import main
from mlm.corpus.datasets import verify as module
from mlm.corpus.datasets.verify import verify
from mlm.data import indexed
from mlm.data.cache import sha256_file
from tests.unit.corpus.test_merge import record, write
from tests.unit.data.index_by_hand import pack_index

IDS = [[1, 2, 256], [3, 256], [250, 5, 6, 256]]


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    prefix = write(tmp_path / "data", IDS)
    sums = {suffix: sha256_file(tmp_path / f"data.{suffix}") for suffix in ("bin", "idx")}
    record(prefix, sha256=sums)
    return prefix


def test_a_sound_dataset_is_called_sound_with_what_was_checked(sound: Path, capsys):
    assert main(["verify", str(sound)]) == 0
    said = capsys.readouterr().out
    assert "sound: 3 documents, 9 tokens of uint16, ids 1 to 256" in said
    assert "checksums as recorded; every document ends with 256" in said


def test_a_dataset_of_another_tool_is_checked_without_a_record(tmp_path: Path):
    verdict = verify(write(tmp_path / "data", IDS))
    assert verdict.wrong == []
    assert "no data.json: tokenizer and checksums are not recorded" in verdict.facts
    assert "ids 1 to 256" in verdict.facts[0]
    assert verify(write(tmp_path / "data", IDS), vocab_size=257).wrong == []
    (wrong,) = verify(tmp_path / "data", vocab_size=256).wrong
    assert "holds the id 256, and the vocabulary that was given has 256 tokens" in wrong


def damage(prefix: Path, kind: str) -> None:
    data, idx = (prefix.with_name(f"data.{suffix}") for suffix in ("bin", "idx"))
    raw = bytearray(data.read_bytes())
    match kind:
        case "a changed id":
            raw[2] ^= 1
            data.write_bytes(raw)
        case "an id beyond the vocabulary":
            data.write_bytes(struct.pack("<H", 257) + raw[2:])
        case "truncation":
            data.write_bytes(raw[:-2])
        case "pointers out of order":
            idx.write_bytes(pack_index(8, 2, [3, 2, 4], pointers=[0, 4, 10]))
        case "documents that overlap":
            idx.write_bytes(pack_index(8, 2, [3, 2, 4], documents=[0, 2, 1, 3]))
        case "another cut of documents":
            idx.write_bytes(pack_index(8, 2, [2, 3, 4]))
        case "no index":
            idx.unlink()
        case "an index that is none":
            idx.write_bytes(b"text\n" * 20)
        case "a record of another dataset":
            record(prefix, documents=4, tokens=8, dtype="int32")
        case "a record that is none":
            prefix.with_name("data.json").write_text("[")


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("a changed id", ["data.bin has the checksum"]),
        (
            "an id beyond the vocabulary",
            ["holds the id 257, and the recorded tokenizer (byte) has 257 tokens"],
        ),
        ("truncation", ["is 16 bytes, but data.idx describes 18 bytes"]),
        ("pointers out of order", ["places sequence 1 at byte 4", "data.idx has the checksum"]),
        ("documents that overlap", ["ends document 1 before its start"]),
        ("another cut of documents", ["document 0 of", "does not end with the recorded", "data.idx has the"]),
        ("no index", ["data.idx cannot be read"]),
        ("an index that is none", ["begins with b'text"]),
        (
            "a record of another dataset",
            ["records documents=4, and there are 3", "tokens=8, and there are 9", "dtype=int32"],
        ),
        ("a record that is none", ["data.json is no JSON object"]),
    ],
)
def test_every_damage_is_found_named_and_ends_with_1(sound: Path, kind: str, messages: list[str], capsys):
    damage(sound, kind)
    assert main(["verify", str(sound)]) == 1
    said = capsys.readouterr().out
    assert "NOT sound" in said
    for message in messages:
        assert message in said


def test_of_several_datasets_each_is_judged(sound: Path, tmp_path: Path, capsys):
    (tmp_path / "other").mkdir()
    damage(write(tmp_path / "other" / "data", IDS), "truncation")
    assert main(["verify", str(sound), str(tmp_path / "other" / "data")]) == 1
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{sound}: sound")
    assert second == f"{tmp_path / 'other' / 'data'}: NOT sound, 1 problem"


def test_steps_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ids = np.random.default_rng(0).integers(0, 256, (40, 7))
    prefix = write(tmp_path / "data", [[*row, 256] for row in ids.tolist()])
    record(prefix, sha256={"bin": sha256_file(tmp_path / "data.bin")})
    whole = verify(prefix)
    monkeypatch.setattr(module, "STEP_BYTES", 8)
    monkeypatch.setattr(module, "CHUNK", 3)
    monkeypatch.setattr(indexed, "CHUNK", 3)
    assert verify(prefix) == whole
    assert whole.wrong == []


def test_documents_without_tokens_are_counted_and_allowed(tmp_path: Path):
    prefix = write(tmp_path / "data", [[1], [2], [3]], documents=[0, 0, 2, 2, 3])
    verdict = verify(prefix)
    assert verdict.wrong == []
    assert "2 documents without tokens" in verdict.facts
    assert verdict.facts[0].startswith("4 documents in 3 sequences, 3 tokens")

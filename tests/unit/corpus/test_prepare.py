"""Text to datasets: what is in them, whoever encodes; what is refused; what a crash leaves."""

from __future__ import annotations

import dataclasses
import gzip
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, pre_tokenizers

from mlm.corpus.preparing import index_file
from mlm.corpus.preparing.encode import Encoder, Recipe
from mlm.corpus.preparing.index_file import write_index
from mlm.corpus.preparing.prepare import InvalidRecords
from mlm.corpus.reading import blocks
from mlm.corpus.reading.blocks import Block, Cursor, Cutting
from mlm.data.cache import sha256_file
from mlm.data.metadata import read_metadata
from mlm.data.tokenizers import ByteTokenizer, Gpt2Tokenizer
from mlm.errors import ConfigError, DataError
from tests.unit.corpus.preparing import Prepare, dataset, left_in, preparer, words, write_jsonl
from tests.unit.data.index_by_hand import pack_index


@pytest.fixture
def run(tmp_path: Path) -> Prepare:
    return preparer(tmp_path)


def test_each_document_is_its_ids_and_one_eod_which_the_length_counts(tmp_path: Path, run: Prepare) -> None:
    texts = ["a", "bb", "ccc", "日本\r\n", " <|endoftext|> "]
    outcome = run(write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in texts]))
    made = dataset(tmp_path)
    assert made.lengths.tolist() == [len(text.encode()) + 1 for text in texts]
    for number, text in enumerate(texts):
        assert made.document(number).tolist() == [*text.encode(), 256]
    assert (
        int(made.lengths.sum()) * made.dtype.itemsize == (tmp_path / "made_text_document.bin").stat().st_size
    )
    assert outcome.parts["text"]["tokens"] == len(made.tokens)
    run(tmp_path / "in.jsonl", eod=False, overwrite=True)
    assert dataset(tmp_path).document(1).tolist() == list(b"bb")


def test_the_record_beside_a_dataset_says_what_it_is(tmp_path: Path, run: Prepare) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": "!c"}, {"text": " "}, {"text": "日"}])
    run(path)
    base = tmp_path / "made_text_document"
    assert read_metadata(base) == {
        "format": 1,
        "tokenizer": ByteTokenizer().describe(),
        "eod": 256,
        "documents": 2,
        "sequences": 2,
        "tokens": 7,
        "dtype": "uint16",
        "level": "document",
        "key": "text",
        "sources": [{"path": str(path), "bytes": path.stat().st_size}],
        "skipped": {"empty": 1},
        "bytes_of_text": 5,
        "sha256": {kind: sha256_file(base.with_name(f"{base.name}.{kind}")) for kind in ("bin", "idx")},
    }


def test_the_bytes_do_not_depend_on_workers_packing_or_where_files_are_cut(
    tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    records = [{"text": words(rng, rng.choice([0, 3, 200])), "title": words(rng, 2)} for _ in range(400)]
    path = write_jsonl(tmp_path / "in.jsonl", records)
    halves = [
        write_jsonl(tmp_path / f"{half}.jsonl", part)
        for half, part in (("0", records[:150]), ("1", records[150:]))
    ]
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    made = {}
    for name, inputs, workers, size in (
        ("one", [path], 1, 4 << 20),
        ("two", [path], 2, 5_000),
        ("three", [path], 3, 20_000),
        ("halves", halves, 2, 9_000),
        ("packed", [packed], 2, 7_000),
    ):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
        run(*inputs, workers=workers, tokenizer="gpt2", prefix=tmp_path / name, keys=("text", "title"))
        made[name] = [
            (tmp_path / f"{name}_{key}_document.{kind}").read_bytes()
            for key in ("text", "title")
            for kind in ("bin", "idx")
        ]
    assert all(files == made["one"] for files in made.values())
    gpt2 = Gpt2Tokenizer()
    texts = [record["text"] for record in records if record["text"]]
    opened = dataset(tmp_path, "two_text_document")
    assert opened.num_documents == len(texts)
    for number in range(0, len(texts), 17):
        assert opened.document(number).tolist() == [*gpt2.encode(texts[number]), gpt2.eod]


def test_every_key_is_a_complete_dataset(tmp_path: Path, run: Prepare) -> None:
    records = [{"text": f"body {i}", "title": f"title {i}" if i else "", "id": i} for i in range(3)]
    outcome = run(write_jsonl(tmp_path / "in.jsonl", records), keys=("title", "text"))
    assert outcome.skipped == {"empty (title)": 1}
    assert [bytes(dataset(tmp_path).document(i)[:-1].tolist()) for i in range(3)] == [
        b"body 0",
        b"body 1",
        b"body 2",
    ]
    titles = dataset(tmp_path, "made_title_document")
    assert [bytes(titles.document(i)[:-1].tolist()) for i in range(2)] == [b"title 1", b"title 2"]


def test_sentences_are_sequences_and_documents_group_them(tmp_path: Path, run: Prepare) -> None:
    path = write_jsonl(
        tmp_path / "in.jsonl", [{"text": "One. Two! Three"}, {"text": "\n"}, {"text": "一つ。「二つ。」"}]
    )
    run(path, split_sentences=True)
    made = dataset(tmp_path, "made_text_sentence")
    assert made.document_index.tolist() == [0, 3, 5]
    sentences = [bytes(made.sequence(i).tolist()).decode() for i in range(len(made))]
    assert sentences == ["One.", " Two!", " Three", "一つ。", "「二つ。」"]
    run(path, split_sentences=True, eod=True, overwrite=True)
    made = dataset(tmp_path, "made_text_sentence")
    assert [int(made.sequence(i)[-1]) == 256 for i in range(len(made))] == [False, False, True, False, True]


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_blank_documents_are_skipped_and_counted(place: str, tmp_path: Path, run: Prepare) -> None:
    blank, full = [{"text": text} for text in ("", "   ", "\n")], [{"text": "a"}, {"text": "b"}]
    at = {"first": 0, "middle": 1, "last": 2}[place]
    outcome = run(write_jsonl(tmp_path / "in.jsonl", [*full[:at], *blank, *full[at:]]))
    assert outcome.skipped == {"empty": 3}
    assert dataset(tmp_path).num_documents == 2


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"text":""}\n{"text":"  "}\n'])
def test_no_token_at_all_is_an_error_and_leaves_nothing(content: bytes, tmp_path: Path, run: Prepare) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="made_text_document would hold no tokens"):
        run(tmp_path / "in.jsonl")
    assert left_in(tmp_path) == []


def test_an_invalid_record_is_refused_by_its_line_or_left_out_and_counted(
    tmp_path: Path, run: Prepare
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(
        b'{"text":"a"}\n{"content":"x"}\n{"text":null}\n{"text":5}\n{"text":"\xff"}\n{"text":"b"}\n{"text":"c'
    )
    with pytest.raises(InvalidRecords) as error:
        run(path)
    assert [problem.where for problem in error.value.problems] == [
        f"{path}:{line}" for line in (2, 3, 4, 5, 7)
    ]
    assert left_in(tmp_path) == []
    outcome = run(path, skip_errors=True)
    assert outcome.flaws == {"without a key": 1, "with no text under a key": 2, "not UTF-8": 1, "not JSON": 1}
    assert len(outcome.flaws_told) == 5
    assert dataset(tmp_path).tokens.tolist() == [97, 256, 98, 256]


def test_lines_are_numbered_through_all_blocks_of_a_file(
    tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100)
    lines = [b'{"text":"line"}'] * 300
    lines[250] = b"broken"
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(lines))
    before = write_jsonl(tmp_path / "before.jsonl", [{"text": "x"}] * 50)
    for workers in (1, 2):
        with pytest.raises(InvalidRecords, match=rf"{path}:251 is not JSON"):
            run(before, path, workers=workers)


def test_ids_above_65535_are_kept_by_a_wider_type(tmp_path: Path, run: Prepare) -> None:
    vocab = {f"w{i}": i for i in range(70_000)} | {"<unk>": 70_000, "<|endoftext|>": 70_001}
    pipeline = Pipeline(models.WordLevel(vocab, unk_token="<unk>"))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pipeline.add_special_tokens(["<|endoftext|>"])
    pipeline.save(str(tmp_path / "tokenizer.json"))
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": "w1 w69999 w65500 w65536"}])
    run(path, tokenizer=f"hf:{tmp_path / 'tokenizer.json'}")
    made = dataset(tmp_path)
    assert made.dtype == np.dtype("<i4")
    assert made.tokens.tolist() == [1, 69_999, 65_500, 65_536, 70_001]


def test_everything_wrong_is_said_at_once_and_nothing_is_made(tmp_path: Path, run: Prepare) -> None:
    (tmp_path / "in.txt").write_text("text")
    with pytest.raises(ConfigError) as error:
        run(tmp_path / "in.txt", tmp_path / "none.jsonl", tokenizer="unheard", workers=0, keys=("a", "a"))
    where = [problem.where for problem in error.value.problems]
    assert len(where) == 4
    assert where[0].endswith("none.jsonl")
    assert where[2:4] == ["--workers=0", "--json-keys=a,a"]
    assert left_in(tmp_path) == []


def test_a_dataset_that_is_there_is_replaced_only_when_told_to(tmp_path: Path, run: Prepare) -> None:
    first = write_jsonl(tmp_path / "a.jsonl", [{"text": "first"}])
    second = write_jsonl(tmp_path / "b.jsonl", [{"text": "second"}])
    run(first)
    with pytest.raises(ConfigError, match="is there already"):
        run(second)
    assert bytes(dataset(tmp_path).document(0)[:-1].tolist()) == b"first"
    run(second, overwrite=True)
    assert bytes(dataset(tmp_path).document(0)[:-1].tolist()) == b"second"
    assert left_in(tmp_path) == [f"made_text_document.{kind}" for kind in ("bin", "idx")] + [
        "made_text_document.json"
    ]


def test_an_index_past_two_gigabytes_has_the_pointers_of_whole_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "CHUNK", 2)
    lengths, documents = [2**30, 2**30, 2**31 - 1, 5, 2**30], [2, 1, 2]
    np.array(lengths, dtype="<i4").tofile(tmp_path / "lengths")
    np.array(documents, dtype="<i4").tofile(tmp_path / "documents")
    counts = write_index(tmp_path / "made.idx", np.dtype("<u2"), tmp_path / "lengths", tmp_path / "documents")
    assert counts == (3, sum(lengths))
    expected = pack_index(8, 2, lengths, [0, 2, 3, 5])
    assert (tmp_path / "made.idx").read_bytes() == expected


def test_an_id_outside_the_vocabulary_is_refused_before_it_would_be_cut_to_two_bytes() -> None:
    smaller = {**ByteTokenizer().describe(), "vocab_size": 100}
    encode = Encoder(Recipe((), Cutting(), smaller, "byte", None))
    line = Block(0, "lines", 0, 1, b'{"text":"abc"}\n', True, 0, Cursor(1))
    assert encode(line).parts[0].tokens == 3
    with pytest.raises(DataError, match="gave id 195, but its vocabulary has 100"):
        encode(dataclasses.replace(line, data='{"text":"\u00ff"}\n'.encode()))

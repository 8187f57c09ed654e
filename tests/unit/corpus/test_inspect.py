from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from mlm.cli.data.main import main
from mlm.corpus.datasets import inspect as module
from mlm.corpus.datasets.inspect import Inspected
from mlm.data.documents import DocumentStream
from mlm.data.indexed import IndexedDataset
from mlm.data.samples import DocumentWindows
from mlm.data.tokenizers import ByteTokenizer
from tests.unit.corpus.test_merge import record, write
from tests.unit.data.index_by_hand import pack_index

TEXTS = ["To be, or not to be", "that is the question:", "Whether 'tis nobler ☃", "x" * 40]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    tokenizer = ByteTokenizer()
    prefix = write(tmp_path / "data", [[*tokenizer.encode(text).tolist(), 256] for text in TEXTS])
    record(prefix)
    return prefix


def said(capsys, *words: str, code: int = 0) -> str:
    assert main(["inspect", *words]) == code
    output = capsys.readouterr()
    return output.out if code == 0 else output.err


def test_document_i_is_text_i_and_one_end_of_document(dataset: Path, capsys):
    for i, text in enumerate(TEXTS):
        head, *body = said(capsys, str(dataset), "--doc", str(i)).splitlines()
        assert head.startswith(f"document {i} of 4: {len(text.encode()) + 1} tokens, from position ")
        assert body == [f"{text}<end of document>"]
        assert said(capsys, str(dataset), "--doc", str(i - 4)).splitlines()[1:] == body


def test_a_sample_in_the_files_order_is_seq_length_and_one_token_with_document_ends_shown(
    dataset: Path, capsys
):
    stream = "".join(f"{text}\0" for text in TEXTS).encode()
    seq = 10
    count = (len(stream) - 1) // seq
    for number in (0, 3, count - 1, -1):
        at = number % count * seq
        head, body = said(capsys, str(dataset), "--sample", str(number), "--seq-length", str(seq)).split(
            "\n", 1
        )
        assert head.startswith(f"sample {number % count} of {count}, in the file's order: 11 tokens")
        expected = stream[at : at + seq + 1].decode(errors="replace").replace("\0", "<end of document>")
        assert body == f"{expected}\n"


def test_the_last_sample_of_2_2_billion_tokens_is_the_right_one(tmp_path: Path, capsys):
    tokens = 2_200_000_000
    (tmp_path / "sparse.idx").write_bytes(pack_index(8, 2, [2**30, 2**30, tokens - 2**31]))
    seq = 64
    start = ((tokens - 1) // seq - 1) * seq
    with open(tmp_path / "sparse.bin", "wb") as file:
        file.truncate(2 * tokens)
        file.seek(2 * start)
        file.write(struct.pack("<65H", *range(1, 66)))
    head, _, ids = said(capsys, str(tmp_path / "sparse"), "--sample", "-1", "--seq-length", "64").splitlines()
    assert f"65 tokens from {start:,} on" in head
    assert ids == " ".join(map(str, range(1, 66)))


def test_a_training_sample_is_the_one_that_training_draws(dataset: Path, capsys):
    opened = IndexedDataset(dataset)
    windows = DocumentWindows(DocumentStream(opened, 0, 4, 7, shuffle=True), 16, seed=7)
    for number in (0, 1, 9):
        ids, starts = windows.packed([number])
        words = ["--sample", str(number), "--seq-length", "16", "--seed", "7", "--split", "1"]
        head, *lines = said(capsys, str(dataset), *words).splitlines()
        assert head == f"training sample {number} with seed=7: 17 tokens"
        borders = [0, *(np.flatnonzero(np.diff(starts[0])) + 1).tolist()]
        found = [int(m[1]) for line in lines if (m := re.match(r"-- tokens (\d+) to", line))]
        assert found == borders
        text = "".join(line for line in lines if not line.startswith("-- "))
        assert text.replace("<end of document>", "") == ByteTokenizer().decode(ids[0])


def test_the_overview_counts_documents_lengths_and_ids(dataset: Path, capsys):
    text = said(capsys, str(dataset))
    lengths = [len(t.encode()) + 1 for t in TEXTS]
    flat = [i for t in TEXTS for i in [*t.encode(), 256]]
    assert re.search(r"documents +4\n", text)
    assert re.search(rf"tokens +{len(flat)}, uint16, {2 * len(flat)} bytes", text)
    assert f"lengths     {min(lengths)} to {max(lengths)} tokens a document" in text
    assert re.search(r"16 to 31 +3  #{40}\n +32 to 63 +1  #{13}\n", text)
    assert f"{len(set(flat))} ids of 257" in text
    assert re.search(rf"120 +{flat.count(120) / len(flat):.2%}  'x'", text)
    assert re.search(rf"256 +{4 / len(flat):.2%}  end of document", text)


def test_steps_do_not_show_and_a_large_dataset_is_counted_in_places_spread_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    prefix = write(tmp_path / "data", [np.arange(1000).tolist()] * 4)
    whole = list(Inspected(prefix, None).overview())
    monkeypatch.setattr(module, "STEP", 10)
    monkeypatch.setattr(module, "CHUNK", 3)
    assert list(Inspected(prefix, None).overview()) == whole
    monkeypatch.setattr(module, "COUNTED", 400)
    (line,) = (line for line in Inspected(prefix, None).overview() if "ids" in line)
    assert "of 400 tokens spread over the file" in line
    assert "the highest is 999" in line


def test_without_a_record_there_are_ids_or_the_text_of_a_given_tokenizer(tmp_path: Path, capsys):
    prefix = write(tmp_path / "data", [[72, 105, 256]])
    lines = said(capsys, str(prefix), "--doc", "0").splitlines()
    assert lines[2] == "72 105 256"
    assert "--tokenizer gpt2" in lines[1]
    assert said(capsys, str(prefix), "--doc", "0", "--tokenizer", "byte").endswith("Hi<end of document>\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--doc", "4"], "there are 4 documents: use 0 to 3, or -1"),
        (["--doc", "-5"], "there are 4 documents"),
        (["--sample", "99", "--seq-length", "10"], "there are 10 samples of 10 tokens"),
        (["--sample", "0", "--seq-length", "107"], "takes 108 tokens, and the dataset has 107"),
        (["--sample", "0"], "give --seq-length"),
        (["--seq-length", "5"], "give --sample N"),
        (["--sample", "0", "--seq-length", "0"], "is not at least 1"),
        (["--sample", "0", "--seq-length", "5", "--split", "1"], "give --seed as well"),
        (["--sample", "-1", "--seq-length", "5", "--seed", "1"], "training samples have no end"),
        (["--sample", "0", "--seq-length", "5", "--seed", "1", "--split", "9,x"], "is no list of numbers"),
        (["--sample", "0", "--seq-length", "5", "--seed", "1", "--split", "0,1"], "training split nothing"),
        (["--doc", "0", "--tokenizer", "gpt2"], "was encoded with byte, 257 tokens"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_numbers(
    dataset: Path, words: list[str], message: str, capsys
):
    assert message in said(capsys, str(dataset), *words, code=2)


def test_control_characters_of_a_text_do_not_reach_the_terminal(tmp_path: Path, capsys):
    prefix = write(tmp_path / "data", [list(b"a\x1b[31mb")])
    assert "a\ufffd[31mb" in said(capsys, str(prefix), "--doc", "0", "--tokenizer", "byte")

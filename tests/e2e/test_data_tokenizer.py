"""The installed mlm-data tokenizer, and the runs and datasets that use what it trains."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mlm.data.indexed import IndexedDataset
from mlm.data.tokenizers import load_tokenizer
from tests.e2e.launching import BIN, TINY
from tests.unit.data.tokenizer_files import hf_bytes, wordpiece
from tests.unit.data.tokenizer_texts import JAPANESE


def mlm(command: str, *words: object, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command), *map(str, words)], input=given, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with JSONL, text and a file of another kind."""
    folder = tmp_path_factory.mktemp("corpus")
    with open(folder / "ja.jsonl", "w", encoding="utf-8") as file:
        for number in range(40):
            file.write(json.dumps({"text": f"第{number}章\n{JAPANESE}"}, ensure_ascii=number % 2 == 0) + "\n")
    (folder / "notes.txt").write_text("one  two\n\n\tthree\n" * 50, encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--model-type", "unigram", "--control", "[CLS],[SEP],[MASK],[PAD]"], "sentencepiece"),
        (["--model-type", "bpe"], "sentencepiece"),
        (["--kind", "bpe"], "gpt2"),
    ],
)
def test_a_trained_tokenizer_prepares_a_dataset_that_gives_its_text_back(
    options: list[str], kind: str, corpus: Path, tmp_path: Path
):
    out = tmp_path / "mine"
    done = mlm("mlm-data", "tokenizer", "train", corpus, "--vocab-size", 450, "--out", out, *options)
    assert (done.returncode, done.stderr) == (0, f"not read, of no known kind: {corpus / 'picture.png'}\n")
    # Paragraphs of a text file count as documents; here each is between two blank lines.
    assert "read      91 documents" in done.stdout
    assert "all of them" in done.stdout
    assert "exact     text -> ids -> text is exact" in done.stdout
    assert f"use it    --tokenizer {kind}:{out}" in done.stdout

    done = mlm(
        "mlm-data", "prepare", corpus / "ja.jsonl", "--out", tmp_path / "ja", "--tokenizer", f"{kind}:{out}"
    )
    assert done.returncode == 0, done.stderr
    dataset = IndexedDataset(tmp_path / "ja_text_document")
    described = json.loads((tmp_path / "ja_text_document.json").read_text())["tokenizer"]
    tokenizer = load_tokenizer(described)
    assert dataset.tokens[-1] == tokenizer.eod
    whole = "".join(f"第{number}章\n{JAPANESE}" for number in range(40))
    assert tokenizer.decode(dataset.tokens) == whole


def test_show_prints_pieces_ids_and_the_round_trip():
    done = mlm("mlm-data", "tokenizer", "show", "gpt2", "-", given="Hello  world\n<|endoftext|>")
    assert done.returncode == 0
    pieces, ids = done.stdout.splitlines()[-2:]
    assert pieces.split() == ["Hello", "␣", "␣world", "⏎", "<", "|", "end", "of", "text", "|", ">"]
    assert ids.split() == ["15496", "220", "995", "198", "27", "91", "437", "1659", "5239", "91", "29"]
    assert "text -> ids -> text is exact" in done.stdout
    assert "special      eod 50256" in done.stdout


def test_show_says_what_a_tokenizer_loses_and_how_much(tmp_path: Path):
    path = wordpiece(tmp_path / "vocab.txt", "the king and the night")
    done = mlm("mlm-data", "tokenizer", "show", f"wordpiece:{path}", "The  King 🎉")
    assert done.returncode == 0
    assert "exact        no: letters become small" in done.stdout
    # T and K become small, a space goes, and the emoji becomes [UNK]: 4 of 10 characters.
    assert "text -> ids -> text is not exact: the text changes, at least" in done.stdout
    assert "1 of 3 tokens (33.3 %)" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "gpt3"], "gpt3 is no tokenizer that is known: did you mean gpt2:DIR?"),
        (["train", "/no/such", "--out", "x", "--vocab-size", "9", "--kind", "bpe"], "2 problems"),
        (["train", ".", "--out", "x", "--vocab-size", "300", "--kind", "bpe", "--model-type", "bpe"],
         "--model-type  is of --kind sentencepiece"),
        (["train", ".", "--out", "x", "--vocab-size", "9", "--sample-characters", "10"], "less than 10,000"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_message_and_exit_2(words: list[str], message: str):
    done = mlm("mlm-data", "tokenizer", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_record_that_is_not_valid_is_named_or_skipped_and_counted(tmp_path: Path):
    lines = [json.dumps({"text": JAPANESE}, ensure_ascii=False)] * 3
    lines[1:1] = ['{"text": 5}', "{"]
    (tmp_path / "dirty.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["train", tmp_path / "dirty.jsonl", "--out", tmp_path / "x", "--vocab-size", 300, "--kind", "bpe"]
    done = mlm("mlm-data", "tokenizer", *words)
    assert (done.returncode, (tmp_path / "x").exists()) == (2, False)
    assert "dirty.jsonl:2 " in done.stderr
    done = mlm("mlm-data", "tokenizer", *words, "--on-error", "skip")
    assert done.returncode == 0, done.stderr
    assert "read      3 documents" in done.stdout
    assert "dirty.jsonl:3 " in done.stderr
    assert "skipped   1 " in done.stdout


@pytest.mark.parametrize("kind", ["hf", "wordpiece"])
def test_a_run_keeps_a_copy_of_its_tokenizer_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    text = JAPANESE * 200
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    source = tmp_path / "source.file"
    (hf_bytes if kind == "hf" else wordpiece)(source, text)
    run_dir = tmp_path / "run"
    words = [
        f"tokenizer={kind}",
        f"tokenizer.path={source}",
        "data=indexed",
        f"data.path={tmp_path / 'text.txt'}",
    ]
    sizes = [
        "model.vocab_size=606",
        "model.padded_vocab_size=null",
        "model.seq_length=64",
        "data.split=[9,1,0]",
    ]
    tiny = [word for word in TINY if "sample_tokens" not in word]
    done = mlm("mlm-train", *tiny, *words, *sizes, "train.sample_tokens=8", f"run_dir={run_dir}")
    assert done.returncode == 0, done.stderr
    description = json.loads((run_dir / "data.json").read_text())["tokenizer"]
    kept = run_dir / {"hf": "tokenizer.json", "wordpiece": "vocab.txt"}[kind]
    assert description["path"] == kept.name
    assert kept.read_bytes() == source.read_bytes()
    source.unlink()
    assert load_tokenizer(description, run_dir).encode("朝の駅").tolist()


def test_prepare_says_what_a_tokenizer_loses_of_the_documents_and_nothing_of_one_that_loses_nothing(
    corpus: Path, tmp_path: Path
):
    vocabulary = wordpiece(tmp_path / "vocab.txt", "the king")
    done = mlm(
        "mlm-data", "prepare", corpus / "ja.jsonl", "--out", tmp_path / "wp", "--tokenizer", vocabulary
    )
    assert done.returncode == 0, done.stderr
    assert "the tokenizer (wordpiece (uncased)" in done.stderr
    assert "of the first 40 texts, text -> ids -> text is not exact: 40 of 40 texts change" in done.stderr
    assert "unknown " in done.stderr
    done = mlm("mlm-data", "prepare", corpus / "ja.jsonl", "--out", tmp_path / "bytes", "--tokenizer", "byte")
    assert (done.returncode, done.stderr) == (0, "")

"""mlm-data prepare as users run it: killed, out of room, beside other people's tokenizers and readers."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tiktoken
import torch
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, pre_tokenizers

from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.data.tokenizers import GPT2_FOLDER
from tests.e2e.megatron_core import indexed_dataset

MLM_DATA = Path(sys.executable).parent / "mlm-data"
# The command with blocks and commits so small that a little text has many moments to be killed at.
RESTLESS = [
    sys.executable,
    "-c",
    "import sys; from mlm.cli.data.main import main;"
    "from mlm.corpus.preparing import prepare; from mlm.corpus.reading import blocks;"
    "blocks.BLOCK_BYTES = 20_000; prepare.COMMIT_S = 0.0; sys.exit(main(sys.argv[1:]))",
]

BROKEN = "  data/a.jsonl:3 is not JSON (Expecting value, character 1)"
BROKEN += "; it is the last line: is the file cut off?"


def run(
    *words: str | Path, limits: Callable[[], None] | None = None, **kind: Any
) -> subprocess.CompletedProcess[str]:
    command = [str(MLM_DATA), "prepare", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, preexec_fn=limits, **kind)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(7)
    words = ["".join(rng.choices("etaoin shrdlu日本é", k=rng.randint(2, 9))) for _ in range(3000)]
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(1500):
            file.write(json.dumps({"text": " ".join(rng.choices(words, k=rng.randint(1, 400)))}) + "\n")
    return path


def files(prefix: Path) -> list[bytes]:
    return [Path(f"{prefix}_text_document.{kind}").read_bytes() for kind in ("bin", "idx")]


def begin_anew(made: Path, whole: Path) -> None:
    """Make room for another run, after a look at what a run that came to its end has left."""
    assert files(made) == files(whole)
    for kind in ("bin", "idx", "json"):
        Path(f"{made}_text_document.{kind}").unlink()


def test_killed_at_random_moments_it_ends_with_the_bytes_of_an_undisturbed_run(
    tmp_path: Path, corpus: Path
) -> None:
    whole, made = tmp_path / "whole", tmp_path / "made"
    begun_s = time.monotonic()
    subprocess.run([*RESTLESS, "prepare", str(corpus), "--out", str(whole)], check=True, capture_output=True)
    duration_s = time.monotonic() - begun_s
    rng = random.Random(8)
    killed, resumed = 0, 0
    while killed < 6:
        process = subprocess.Popen(
            [*RESTLESS, "prepare", str(corpus), "--out", str(made)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            said, _ = process.communicate(timeout=rng.uniform(0.3, 1.0) * duration_s)
            # It came to its end: begin anew, there are kills left.
            assert process.returncode == 0, said
            begin_anew(made, whole)
        except subprocess.TimeoutExpired:
            workers = psutil.Process(process.pid).children()
            process.kill()
            said, _ = process.communicate()
            killed += 1
            _, alive = psutil.wait_procs(workers, timeout=30)
            assert not alive, "workers outlive a parent that was killed"
            if Path(f"{made}_text_document.idx").exists():  # killed on its way out
                begin_anew(made, whole)
        resumed += b"going on after" in said
    last = run(corpus, "--out", made)
    assert last.returncode == 0 or "is there already" in last.stderr, last.stderr
    assert files(made) == files(whole)
    assert resumed >= 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{name}_text_document.{kind}" for name in ("made", "whole") for kind in ("bin", "idx", "json")
    ]


def test_ctrl_c_ends_everything_at_once_and_says_how_to_go_on(tmp_path: Path, corpus: Path) -> None:
    made, journal = tmp_path / "made", tmp_path / "made.partial" / "journal.jsonl"
    process = subprocess.Popen(
        [*RESTLESS, "prepare", str(corpus), "--out", str(made)], stderr=subprocess.PIPE, text=True
    )
    deadline_s = time.monotonic() + 60
    while not journal.exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == f"mlm-data prepare: stopped; the same command goes on from what is in {made}.partial\n"
    assert not psutil.wait_procs(workers, timeout=30)[1]
    assert run(corpus, "--out", made).returncode == 0


def test_when_files_cannot_grow_it_says_so_and_leaves_no_dataset(tmp_path: Path, corpus: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    job = run(corpus, "--out", tmp_path / "made", limits=small_files)
    assert job.returncode == 2
    assert "made.partial cannot be written (File too large): make room or choose another --out" in job.stderr
    assert "Traceback" not in job.stderr
    assert not list(tmp_path.glob("*.idx")) + list(tmp_path.glob("*.bin"))
    assert run(corpus, "--out", tmp_path / "made").returncode == 0
    assert not (tmp_path / "made.partial").exists()


def test_a_huge_line_takes_bounded_memory_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    with open(path, "wb") as file:
        file.write(b'{"text":"before"}\n{"text":"')
        file.seek(600 << 20, os.SEEK_CUR)  # a hole of the file: reads as zeros, takes no room
        file.write(b'"}\n{"text":"after"}\n')

    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (500 << 20, 500 << 20))

    words = [path, "--out", tmp_path / "made", "--tokenizer", "byte", "--workers", "1"]
    refused = run(*words, limits=little_memory)
    assert refused.returncode == 2
    assert f"{path}:2 is 629,145,612 bytes long, over --max-document-bytes 268435456" in refused.stderr
    assert run(*words, "--on-error", "skip", limits=little_memory).returncode == 0
    made = IndexedDataset(tmp_path / "made_text_document")
    assert [bytes(made.document(i)[:-1].tolist()) for i in range(made.num_documents)] == [b"before", b"after"]


def test_what_a_user_reads(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text":"first document"}\n{"text":" "}\nbroken\n')
    (tmp_path / "data" / "b.txt").write_text("second document\n")
    (tmp_path / "data" / "notes.md").write_text("none of it")
    refused = run("data", "--out", "made", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "mlm-data prepare: invalid records, no dataset was written",
        BROKEN,
        "    -> correct it, or pass over such records with --on-error skip",
    ]
    job = run("data", "--out", "made", "--on-error", "skip", cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    shown = job.stdout.splitlines()
    assert shown[:9] == [
        f"{tmp_path}/made_text_document.bin, .idx and .json",
        "  documents  2",
        "  tokens     7 (uint16)",
        "  text       30 bytes, 4.29 bytes a token",
        "read       3 valid records of 2 files",
        "skipped    1 empty",
        "invalid    1, left out: 1 not JSON",
        BROKEN,
        "not read   data/notes.md (of no known kind)",
    ]
    assert shown[9].startswith("time       ")


def test_standard_input_is_prepared(tmp_path: Path) -> None:
    job = run("-", "--out", tmp_path / "made", "--tokenizer", "byte", input='{"text":"a"}\n{"text":"bc"}\n')
    assert job.returncode == 0, job.stderr
    assert IndexedDataset(tmp_path / "made_text_document").tokens.tolist() == [97, 256, 98, 99, 256]


@pytest.fixture(scope="module")
def test_data() -> Path:
    folder = os.environ.get("MLM_TEST_DATA")
    if not folder:
        pytest.skip("MLM_TEST_DATA is not set: it names a folder with classics/ and wikitext103/")
    return Path(folder)


def test_gpt2_datasets_of_real_text_hold_the_ids_of_tiktoken_and_tokenizers(
    tmp_path: Path, test_data: Path
) -> None:
    vocab, merges = str(GPT2_FOLDER / "vocab.json"), str(GPT2_FOLDER / "merges.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        ranks = data_gym_to_mergeable_bpe_ranks(merges, vocab)
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    exact = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    other = Pipeline(models.BPE.from_file(vocab, merges))
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    wikitext = tmp_path / "wiki.test.txt"
    wikitext.write_bytes((test_data / "wikitext103" / "wiki.test.tokens").read_bytes())
    classics = test_data / "classics" / "classics_24mb.jsonl"
    job = run(wikitext, classics, "--out", tmp_path / "made")
    assert job.returncode == 0, job.stderr
    made = IndexedDataset(tmp_path / "made_text_document")
    made.verify()
    texts = [wikitext.read_bytes().decode()]
    texts += [json.loads(line)["text"] for line in classics.read_bytes().decode().split("\n") if line]
    assert made.num_documents == len(texts) == 1293
    for number, text in enumerate(texts):
        ids = exact.encode_to_numpy(text, disallowed_special=())
        assert np.array_equal(made.document(number), [*ids, 50256]), number
        if number % 40 == 0:
            assert np.array_equal(ids, other.encode(text).ids), number


def test_megatron_cores_reader_reads_what_prepare_writes(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    megatron = indexed_dataset(monkeypatch)
    texts = [json.loads(line)["text"] for line in corpus.read_text(encoding="utf-8").splitlines()]
    for name, words in (("made", []), ("one", ["--text-unit", "file"]), ("made", ["--split-sentences"])):
        source = corpus
        if name == "one":
            source = tmp_path / "one.txt"
            source.write_text(texts[0], encoding="utf-8")
        assert run(source, "--out", tmp_path / name, *words).returncode == 0
        level = "sentence" if "--split-sentences" in words else "document"
        ours = IndexedDataset(tmp_path / f"{name}_text_{level}")
        for mapped in (True, False):
            theirs = megatron.IndexedDataset(str(tmp_path / f"{name}_text_{level}"), mmap=mapped)
            assert len(theirs) == len(ours)
            assert theirs.sequence_lengths.tolist() == ours.lengths.tolist()
            assert theirs.document_indices.tolist() == ours.document_index.tolist()
            for number in range(0, len(ours), max(1, len(ours) // 200)):
                assert np.array_equal(theirs[number], ours.sequence(number))
        if level == "document":
            assert ours.num_documents == (
                1 if name == "one" else len([text for text in texts if text.strip()])
            )


# Theirs makes arrays of tensors in a way that newer NumPy would rather not have.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")
@pytest.mark.parametrize("vocab_size", [50_257, 120_000])
@pytest.mark.parametrize("documents", [1, 40])
def test_we_read_what_megatron_cores_builder_writes(
    vocab_size: int, documents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    megatron = indexed_dataset(monkeypatch)
    rng = np.random.default_rng(9)
    dtype = megatron.DType.optimal_dtype(vocab_size)
    builder = megatron.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=dtype)
    expected: list[list[int]] = []
    ends = [0]
    for number in range(documents):
        sentences = [rng.integers(0, vocab_size, rng.integers(1, 60)).tolist() for _ in range(1 + number % 3)]
        for ids in sentences:
            builder.add_item(torch.tensor(ids))
        builder.end_document()
        expected += sentences
        ends.append(len(expected))
    builder.finalize(str(tmp_path / "theirs.idx"))
    ours = IndexedDataset(tmp_path / "theirs")
    ours.verify()
    assert [ours.sequence(i).tolist() for i in range(len(ours))] == expected
    assert ours.document_index.tolist() == ends
    assert ours.document(documents - 1).tolist() == [i for ids in expected[ends[-2] :] for i in ids]

    # And what our writer writes of the same documents is, byte for byte, what theirs does.
    whole = megatron.IndexedDatasetBuilder(str(tmp_path / "whole.bin"), dtype=dtype)
    with IndexedWriter(tmp_path / "written", vocab_size) as writer:
        for number in range(documents):
            ids = ours.document(number).tolist()
            writer.add_document(ids)
            whole.add_document(torch.tensor(ids), [len(ids)])
    whole.finalize(str(tmp_path / "whole.idx"))
    for kind in ("bin", "idx"):
        assert (tmp_path / f"written.{kind}").read_bytes() == (tmp_path / f"whole.{kind}").read_bytes()

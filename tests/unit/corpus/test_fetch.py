"""mlm-data fetch against a hub on this machine: the library's own requests, real files, every refusal."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mlm.corpus.public import fetch
from mlm.corpus.public.catalogue import HUB, SETS, HubFile, PublicSet, Wanted, race_records, wikitext_lines
from mlm.errors import ConfigError
from mlm.eval.files import DataFile, find_files
from mlm.eval.lambada import OPENAI
from mlm.eval.wikitext import RAW, TOKENS
from mlm.finetune.race import read_race
from tests.unit.corpus.hub_server import hub_server

LAMBADA = "EleutherAI/lambada_openai/data/lambada_test.jsonl"
COMMAND = [sys.executable, "-m", "mlm.cli.data.main", "fetch"]


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLM_DATA", raising=False)
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.fixture
def published() -> Path:
    folder = Path(os.environ.get("MLM_TEST_DATA", "/nowhere"))
    if not (folder / "lambada" / "lambada_test.jsonl").is_file():
        pytest.skip("set MLM_TEST_DATA to a folder with lambada/, wikitext103/ and wikitext-raw/")
    return folder


def run(*words: str, endpoint: str = "http://127.0.0.1:9") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the hub's library reads its endpoint when it is imported."""
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, env=environment, timeout=60)


def test_lambada_is_fetched_once_and_mlm_eval_finds_it(published: Path, tmp_path: Path):
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    text = (published / "lambada" / "lambada_test.jsonl").read_bytes()
    with hub_server({LAMBADA: text}) as (endpoint, requests):
        first = run("lambada", endpoint=endpoint)
        assert first.returncode == 0, first.stderr
        assert any(request.startswith("GET") for request in requests)
        seen = len(requests)
        second = run("lambada", endpoint=endpoint)
        assert second.returncode == 0
        assert "is there, the published file" in second.stdout
        assert len(requests) == seen
    paths, problems = find_files("lambada", (OPENAI,), {})
    assert not problems
    assert paths["openai"].read_bytes() == text
    assert [path.name for path in (tmp_path / "cache" / "eval").iterdir()] == ["lambada_test.jsonl"]


def test_wikitexts_rows_become_the_published_files_byte_for_byte(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    monkeypatch.setenv("MLM_DATA", str(tmp_path / "data"))
    names = {
        "wikitext-103-v1/test": published / "wikitext103" / "wiki.test.tokens",
        "wikitext-103-raw-v1/test": published / "wikitext-raw" / "wiki.test.raw",
        "wikitext-103-v1/validation": published / "wikitext103" / "wiki.valid.tokens",
    }
    files = {
        f"Salesforce/wikitext/{name}-00000-of-00001.parquet": hub_rows(path, tmp_path)
        for name, path in names.items()
    }
    # The parquet files here are made by another writer than the hub's, and have other sizes.
    public = SETS["wikitext103"]
    wanted = tuple(replace(f, source=replace(f.source, size=0)) for f in public.files if f.source)
    with hub_server(files) as (endpoint, _):
        script = (
            "import sys, pickle; from pathlib import Path; from mlm.corpus.public.fetch import fetch;"
            "public = pickle.loads(bytes.fromhex(sys.argv[1])); print(fetch(public, None, print))"
        )
        argument = pickle.dumps(replace(public, files=wanted)).hex()
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", script, argument], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
    for path in names.values():
        assert (tmp_path / "data" / "wikitext103" / path.name).read_bytes() == path.read_bytes()
    paths, problems = find_files("wikitext103", (TOKENS, RAW), {})
    assert not problems
    assert set(paths) == {"tokens", "raw"}


def hub_rows(path: Path, folder: Path) -> bytes:
    """A parquet file as the hub has it: a row a line, blank lines as empty strings."""
    import pyarrow
    import pyarrow.parquet

    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    out = folder / "rows.parquet"
    table = pyarrow.table({"text": ["" if line == " \n" else line for line in lines]})
    pyarrow.parquet.write_table(table, out)
    return out.read_bytes()


def test_blank_rows_are_the_only_ones_that_change(tmp_path: Path):
    pytest.importorskip("pyarrow", reason="needs the extra hub")
    path = tmp_path / "file.txt"
    path.write_text(" \n = Title = \n \n words \n")
    parquet = tmp_path / "in.parquet"
    parquet.write_bytes(hub_rows(path, tmp_path))
    wikitext_lines(parquet, tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes() == path.read_bytes()


def test_what_arrives_with_another_checksum_is_kept_aside_and_not_used(tmp_path: Path):
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    wrong = b"x" * OPENAI.size
    with hub_server({LAMBADA: wrong}) as (endpoint, _):
        done = run("lambada", endpoint=endpoint)
    assert done.returncode == 1
    assert f"has the sha256 {hashlib.sha256(wrong).hexdigest()}, not {OPENAI.sha256}" in done.stdout
    folder = tmp_path / "cache" / "eval"
    assert [path.name for path in folder.iterdir()] == ["lambada_test.jsonl.rejected"]


def test_without_a_network_it_says_within_seconds_what_to_get_and_where_it_goes(tmp_path: Path):
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    began = time.monotonic()
    done = run("lambada")
    assert time.monotonic() - began < 20
    assert done.returncode == 1
    assert "cannot be asked" in done.stdout
    parts = (
        OPENAI.sha256,
        "1,819,752 bytes",
        f"{HUB}/datasets/EleutherAI/lambada_openai/resolve/",
        "mlm-data fetch lambada --from FILE",
        str(tmp_path / "cache" / "eval" / OPENAI.name),
    )
    for part in parts:
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "cache" / "eval").iterdir()) == []


def test_a_file_the_hub_does_not_have_is_the_same_message(tmp_path: Path):
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    with hub_server({}) as (endpoint, _):
        done = run("openwebtext-sample", endpoint=endpoint)
    assert done.returncode == 1
    assert "404" in done.stdout
    assert "train-00000-of-00080.parquet (302,848,326 bytes, sha256 caed9f4b" in done.stderr


SMALL = DataFile("text", "small.txt", 5, hashlib.sha256(b"words").hexdigest(), origin="made here")
PUBLIC = PublicSet("small", "a word", "none", (Wanted(SMALL, HubFile("a/b", "main", "small.txt", 5)),), True)


def test_a_file_of_the_users_is_taken_by_its_content_whatever_its_name(tmp_path: Path):
    source = tmp_path / "download (1).txt"
    source.write_bytes(b"words")
    outcome = fetch.register(PUBLIC, [source], None, print)
    assert [path.read_bytes() for path in outcome.there] == [b"words"]
    assert outcome.there[0] == tmp_path / "cache" / "eval" / "small.txt"


def test_another_file_is_refused_and_nothing_is_put_there(tmp_path: Path):
    source = tmp_path / "small.txt"
    source.write_bytes(b"sword")
    with pytest.raises(ConfigError, match=r"has the sha256 .*, not ") as caught:
        fetch.register(PUBLIC, [source, tmp_path / "none", tmp_path], None, print)
    assert len(caught.value.problems) == 3
    assert not (tmp_path / "cache").exists()


def test_a_file_that_is_there_with_another_content_is_refused_not_overwritten(tmp_path: Path):
    target = tmp_path / "to" / "small.txt"
    target.parent.mkdir()
    target.write_bytes(b"mine, and longer")
    for attempt in (
        lambda: fetch.fetch(PUBLIC, target.parent, print),
        lambda: fetch.register(PUBLIC, [_file(tmp_path, b"words")], target.parent, print),
    ):
        with pytest.raises(ConfigError, match=r"has 16 bytes, not 5: move it away"):
            attempt()
    assert target.read_bytes() == b"mine, and longer"


def test_files_of_one_name_in_two_folders_are_told_apart_by_the_folder(tmp_path: Path):
    source = tmp_path / "test" / "high.jsonl"
    source.parent.mkdir()
    source.write_bytes(b"of high schools")
    outcome = fetch.register(SETS["race"], [source], tmp_path / "to", print)
    assert outcome.there == [tmp_path / "to" / "test" / source.name]
    with pytest.raises(ConfigError, match="is no file of race"):
        fetch.register(SETS["race"], [_file(tmp_path, b"", source.name)], tmp_path / "to", print)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be written"):
        fetch.register(PUBLIC, [_file(tmp_path, b"words")], tmp_path / "file" / "below", print)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lambda"], "use lambada"),
        ([], "names no data set"),
        (["lambada", "race", "--from", "x"], "name one at a time"),
    ],
)
def test_what_was_mistyped_is_refused(words: list[str], message: str):
    done = run(*words)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_list_shows_every_set_and_what_is_there(tmp_path: Path):
    folder = tmp_path / "cache" / "eval"
    folder.mkdir(parents=True)
    (folder / "lambada_test.jsonl").write_bytes(b"")
    shown = run("--list").stdout
    assert all(f"{name}: " in shown for name in SETS)
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("    there")] == [OPENAI.name]


def _file(folder: Path, content: bytes, name: str = "file.bin") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_races_rows_become_records_that_fine_tuning_reads(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow.parquet import write_table

    rows = [
        ("high1.txt", "A text.", "B", "What?", ["a", "b", "c", "d"]),
        ("high1.txt", "A text.", "D", "It is _ .", ["e", "f", "g", ""]),
        ("high2.txt", "Another.", "A", "Why?", ["a", "b", "c", "d"]),
    ]
    names = ("example_id", "article", "answer", "question", "options")
    columns = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    (tmp_path / "train").mkdir()
    race_records(tmp_path / "rows.parquet", tmp_path / "train" / "high.jsonl")
    examples = read_race(tmp_path / "train")
    assert [(e.id, e.part, e.answer) for e in examples] == [
        ("high1-0", "high", 1),
        ("high1-1", "high", 3),
        ("high2-0", "high", 0),
    ]
    assert examples[1].options == ("e", "f", "g", "")

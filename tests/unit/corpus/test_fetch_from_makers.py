"""mlm-data fetch from the makers' own addresses: archives, broken downloads, what must not be sent there."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlm.corpus.public import fetch
from mlm.corpus.public.catalogue import SETS, PublicSet, Wanted, WebFile
from mlm.errors import ConfigError
from mlm.eval.files import DataFile
from tests.unit.corpus.web_server import web_server

MEMBERS = {"PAIRS/train.tsv": b"a\tb\n" * 50_000, "PAIRS/dev.tsv": b"c\td\n", "PAIRS/test.tsv": b"not wanted"}


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    monkeypatch.delenv("MLM_DATA", raising=False)
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@pytest.fixture
def archive() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as opened:
        for name, content in MEMBERS.items():
            opened.writestr(name, content)
    return written.getvalue()


def pairs(url: str, archive: bytes, *members: str) -> PublicSet:
    """A set of files out of an archive."""
    source = WebFile(f"{url}/data/PAIRS.zip", len(archive), hashlib.sha256(archive).hexdigest())
    names = members or ("PAIRS/train.tsv", "PAIRS/dev.tsv")
    files = [Wanted(DataFile(n, n.partition("/")[2], origin="made here"), source, member=n) for n in names]
    return PublicSet("pairs", "made here", "none", tuple(files))


def test_an_archive_is_fetched_once_for_all_its_files(archive: bytes, tmp_path: Path):
    lines: list[str] = []
    with web_server({"/data/PAIRS.zip": archive}) as (url, requests):
        outcome = fetch.fetch(pairs(url, archive), tmp_path / "to", lines.append)
        assert [seen for seen, _ in requests].count("GET /data/PAIRS.zip") == 1
        assert fetch.fetch(pairs(url, archive), tmp_path / "to", print).there == outcome.there
        assert [seen for seen, _ in requests].count("GET /data/PAIRS.zip") == 1
    assert {path.name: path.read_bytes() for path in outcome.there} == {
        "train.tsv": MEMBERS["PAIRS/train.tsv"],
        "dev.tsv": MEMBERS["PAIRS/dev.tsv"],
    }
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["dev.tsv", "train.tsv"]
    assert "checked against the sha256 of PAIRS.zip" in "\n".join(lines)


def test_a_broken_download_is_taken_up_where_it_ended(archive: bytes, tmp_path: Path):
    begun = tmp_path / "to" / ".pairs.partial" / "PAIRS.zip.incomplete"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(archive[:100_000])
    with web_server({"/data/PAIRS.zip": archive}) as (url, requests):
        outcome = fetch.fetch(pairs(url, archive), tmp_path / "to", print)
    assert [headers.get("range") for seen, headers in requests if seen.startswith("GET")] == ["bytes=100000-"]
    assert outcome.there[0].read_bytes() == MEMBERS["PAIRS/train.tsv"]


def test_more_than_the_whole_file_is_no_beginning_of_it(archive: bytes, tmp_path: Path):
    begun = tmp_path / "to" / ".pairs.partial" / "PAIRS.zip.incomplete"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(archive + b"more")
    with web_server({"/data/PAIRS.zip": archive}) as (url, _):
        outcome = fetch.fetch(pairs(url, archive), tmp_path / "to", print)
    assert outcome.there[0].read_bytes() == MEMBERS["PAIRS/train.tsv"]


def test_the_hubs_token_goes_to_the_hub_only(archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with web_server({"/data/PAIRS.zip": archive}) as (url, requests):
        fetch.fetch(pairs(url, archive), tmp_path / "to", print)
    assert len(requests) >= 2
    assert not any("authorization" in headers for _, headers in requests)


def _another_content(url: str, archive: bytes) -> PublicSet:
    other = pairs(url, archive)
    return replace(
        other,
        files=tuple(
            replace(f, source=replace(f.source, sha256="0" * 64)) if isinstance(f.source, WebFile) else f
            for f in other.files
        ),
    )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (_another_content, "has the sha256"),
        (lambda _, archive: pairs("http://127.0.0.1:9", archive), "cannot be asked"),
    ],
)
def test_what_does_not_come_is_said_once_for_the_archive(
    wanted: Callable[[str, bytes], PublicSet], said: str, archive: bytes, tmp_path: Path
):
    lines: list[str] = []
    with web_server({"/data/PAIRS.zip": archive}) as (url, _):
        outcome = fetch.fetch(wanted(url, archive), tmp_path / "to", lines.append)
    assert said in "\n".join(lines)
    assert (outcome.there, len(outcome.missing)) == ([], 1)
    assert outcome.missing[0].startswith("train.tsv, dev.tsv\n    get   http://127.0.0.1")
    assert f"{len(archive):,} bytes, sha256" in outcome.missing[0]


def test_an_archive_of_the_users_gives_all_its_files(archive: bytes, tmp_path: Path):
    carried = tmp_path / "download.zip"
    carried.write_bytes(archive)
    outcome = fetch.register(pairs("http://127.0.0.1:9", archive), [carried], tmp_path / "to", print)
    assert [path.name for path in outcome.there] == ["train.tsv", "dev.tsv"]
    assert outcome.there[1].read_bytes() == MEMBERS["PAIRS/dev.tsv"]


def test_an_archive_without_a_file_that_is_wanted_is_refused(archive: bytes, tmp_path: Path):
    carried = tmp_path / "download.zip"
    carried.write_bytes(archive)
    wanted = pairs("http://127.0.0.1:9", archive, "PAIRS/none.tsv")
    with pytest.raises(ConfigError, match=r"has no PAIRS/none\.tsv: get it again"):
        fetch.register(wanted, [carried], tmp_path / "to", print)
    assert not list((tmp_path / "to").glob("*.tsv"))


@pytest.mark.parametrize("name", ["race", "mnli", "qqp", "squad_v1", "squad_v2"])
def test_every_task_of_fine_tuning_can_be_fetched(name: str):
    roles = {file.published.role.rpartition("-")[2].partition("_")[0] for file in SETS[name].files}
    assert roles >= {"train", "dev"}
    assert all(file.source for file in SETS[name].files)

"""The public data sets that `mlm-data fetch` knows: files, where they come from, licences. No network."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm.eval.files import DataFile
from mlm.eval.lambada import OPENAI, ORIGINAL
from mlm.eval.wikitext import RAW, TOKENS

HUB = "https://huggingface.co"


@dataclass(frozen=True)
class HubFile:
    """A file of a data set on the Hugging Face hub, at a fixed revision. size: bytes, 0 where unknown."""

    repository: str
    revision: str
    path: str
    size: int = 0
    sha256: str = ""

    @property
    def url(self) -> str:
        return f"{HUB}/datasets/{self.repository}/resolve/{self.revision}/{self.path}"

    @property
    def place(self) -> str:
        return self.repository


@dataclass(frozen=True)
class WebFile:
    """A file at its makers' address. size: bytes."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def place(self) -> str:
        return self.url.rpartition("/")[0]


@dataclass(frozen=True)
class Wanted:
    """One file of a data set as it is to lie on disk. published: its name, size and sha256 where known.

    source: where it comes from, None when it has to be got by hand; by_hand: where else a person finds it;
    convert: what makes the published file of the source, None when they are the same; member: the file in the
    source where that is a .zip.
    """

    published: DataFile
    source: HubFile | WebFile | None = None
    by_hand: str = ""
    convert: Callable[[Path, Path], None] | None = None
    member: str = ""

    def make(self, source: Path, out: Path) -> None:
        """The published file out of a source of another form. Raises ValueError when it is not in there."""
        if self.member:
            _unzip(source, self.member, out)
        elif self.convert:
            self.convert(source, out)

    @property
    def is_made(self) -> bool:
        """Whether the source has another form than the published file."""
        return bool(self.member or self.convert)


@dataclass(frozen=True)
class PublicSet:
    """A public data set. for_evaluation: whether mlm-eval reads its files, which decides where they go."""

    name: str
    summary: str
    licence: str
    files: tuple[Wanted, ...]
    for_evaluation: bool = False


def wikitext_lines(parquet: Path, out: Path) -> None:
    """The hub's rows as the file they came from: one a line, of which the blank ones hold a space."""
    from pyarrow.parquet import read_table

    rows = read_table(parquet, columns=["text"]).column("text").to_pylist()
    out.write_bytes("".join(row or " \n" for row in rows).encode())


def race_records(parquet: Path, out: Path) -> None:
    """The hub's rows, one a question, as the records of RACE's files: a passage with its questions a line."""
    from pyarrow.parquet import read_table

    records: list[dict[str, Any]] = []
    for row in read_table(parquet).to_pylist():
        if not records or (records[-1]["id"], records[-1]["article"]) != (row["example_id"], row["article"]):
            lists: dict[str, Any] = {"questions": [], "options": [], "answers": []}
            records.append({"id": row["example_id"], "article": row["article"], **lists})
        for key, value in (("questions", "question"), ("options", "options"), ("answers", "answer")):
            records[-1][key].append(row[value])
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    out.write_text(text, encoding="utf-8")


def _unzip(archive: Path, member: str, out: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(member) as found, open(out, "wb") as file:
            shutil.copyfileobj(found, file)
    except (KeyError, zipfile.BadZipFile):
        raise ValueError(f"has no {member}") from None


_WIKITEXT_REVISION = "b08601e04326c79dfdd32d625aee71d232d685c3"
_RACE_REVISION = "2fec9fd81f1dc971569a9b729c43f2f0e6436637"
_GLUE = "https://dl.fbaipublicfiles.com/glue/data"
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
_VALID = DataFile(
    role="valid",
    name="wiki.valid.tokens",
    size=1_142_309,
    sha256="9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b",
    origin="the validation split of wikitext-103-v1, word by word with <unk>, CC BY-SA 3.0",
    required=False,
)


def _wikitext(path: str, size: int) -> HubFile:
    return HubFile("Salesforce/wikitext", _WIKITEXT_REVISION, path, size)


def _squad(version: str, train: WebFile, dev: WebFile) -> PublicSet:
    files = {"train": train, "dev": dev}
    return PublicSet(
        f"squad_v{version[0]}",
        f"questions about Wikipedia's paragraphs (SQuAD {version}), to fine-tune on",
        "CC BY-SA 4.0",
        tuple(
            Wanted(DataFile(role, file.name, file.size, file.sha256, f"SQuAD {version}, {role}"), file)
            for role, file in files.items()
        ),
    )


def _glue(name: str, summary: str, licence: str, archive: WebFile, files: Sequence[str]) -> PublicSet:
    def wanted(file: str) -> Wanted:
        origin = f"{name.upper()}/{file} in {archive.name}"
        return Wanted(
            DataFile(Path(file).stem, file, origin=origin), archive, member=f"{name.upper()}/{file}"
        )

    return PublicSet(name, summary, licence, tuple(wanted(file) for file in files))


def _as_it_is(role: str, name: str, hub: HubFile) -> Wanted:
    return Wanted(DataFile(role, name, hub.size, hub.sha256, f"{hub.path} of {hub.repository}"), hub)


_SETS = (
    PublicSet(
        "wikitext103",
        "the test articles that mlm-eval measures perplexity on, and the validation articles",
        "CC BY-SA 3.0",
        (
            Wanted(
                TOKENS,
                _wikitext("wikitext-103-v1/test-00000-of-00001.parquet", 721_735),
                "wikitext-103/wiki.test.tokens in https://wikitext.smerity.com/wikitext-103-v1.zip",
                wikitext_lines,
            ),
            Wanted(
                RAW,
                _wikitext("wikitext-103-raw-v1/test-00000-of-00001.parquet", 732_610),
                "wikitext-103-raw/wiki.test.raw in https://wikitext.smerity.com/wikitext-103-raw-v1.zip",
                wikitext_lines,
            ),
            Wanted(
                _VALID,
                _wikitext("wikitext-103-v1/validation-00000-of-00001.parquet", 655_106),
                "wikitext-103/wiki.valid.tokens in https://wikitext.smerity.com/wikitext-103-v1.zip",
                wikitext_lines,
            ),
        ),
        for_evaluation=True,
    ),
    PublicSet(
        "lambada",
        "the test passages that mlm-eval predicts last words of",
        "MIT (OpenAI's release), CC BY 4.0 (the original)",
        (
            Wanted(
                OPENAI,
                HubFile(
                    "EleutherAI/lambada_openai",
                    "900124bf3b8235c6daf21033af9948b3f07346c4",
                    "data/lambada_test.jsonl",
                    OPENAI.size,
                    OPENAI.sha256,
                ),
                "https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl",
            ),
            Wanted(ORIGINAL, by_hand="lambada-dataset.tar.gz of https://zenodo.org/records/2630551"),
        ),
        for_evaluation=True,
    ),
    PublicSet(
        "race",
        "reading comprehension with four options, for middle and high schools",
        "research only, not commercial",
        tuple(
            Wanted(
                DataFile(f"{level}-{split}", f"{split}/{level}.jsonl", origin=f"RACE, {level} school"),
                HubFile("ehovy/race", _RACE_REVISION, f"{level}/{theirs}-00000-of-00001.parquet"),
                "https://www.cs.cmu.edu/~glai1/data/race/RACE.tar.gz",
                race_records,
            )
            for level in ("middle", "high")
            for split, theirs in (("train", "train"), ("dev", "validation"), ("test", "test"))
        ),
    ),
    _glue(
        "mnli",
        "pairs of sentences of which one may follow from the other or contradict it (GLUE), to fine-tune on",
        "OANC's, CC BY-SA 3.0, CC BY 3.0, by the source of a text",
        WebFile(
            f"{_GLUE}/MNLI.zip",
            312_783_507,
            "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
        ),
        ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"),
    ),
    _glue(
        "qqp",
        "pairs of questions that may ask the same (GLUE), to fine-tune on",
        "Quora's terms, not commercial",
        WebFile(
            f"{_GLUE}/QQP-clean.zip",
            41_696_084,
            "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
        ),
        ("train.tsv", "dev.tsv"),
    ),
    _squad(
        "1.1",
        WebFile(
            f"{_SQUAD}/train-v1.1.json",
            30_288_272,
            "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        ),
        WebFile(
            f"{_SQUAD}/dev-v1.1.json",
            4_854_279,
            "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        ),
    ),
    _squad(
        "2.0",
        WebFile(
            f"{_SQUAD}/train-v2.0.json",
            42_123_633,
            "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
        ),
        WebFile(
            f"{_SQUAD}/dev-v2.0.json",
            4_370_528,
            "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
        ),
    ),
    PublicSet(
        "wikitext103-train",
        "half a gigabyte of Wikipedia's better articles, raw, to train on",
        "CC BY-SA 3.0",
        tuple(
            _as_it_is(
                f"train-{number}",
                f"train-0000{number}-of-00002.parquet",
                _wikitext(f"wikitext-103-raw-v1/train-0000{number}-of-00002.parquet", size),
            )
            for number, size in enumerate((156_987_808, 157_088_770))
        ),
    ),
    PublicSet(
        "openwebtext-sample",
        "the first of 80 parts of OpenWebText, 100,173 documents, to train on",
        "CC0 (the packaging; the pages are their authors')",
        (
            _as_it_is(
                "train",
                "train-00000-of-00080.parquet",
                HubFile(
                    "Skylion007/openwebtext",
                    "b4325f019c648b1641a1784748667e8b74e5e064",
                    "plain_text/train-00000-of-00080.parquet",
                    302_848_326,
                    "caed9f4b7053d7cd4d1a13ce9ec9224d84a3bba1f11579193562a7e31ebe656e",
                ),
            ),
        ),
    ),
)

SETS = {public.name: public for public in _SETS}

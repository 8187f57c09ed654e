"""The public data sets that `mlm-data fetch` knows: files, where they come from, licences. No network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Wanted:
    """One file of a data set as it is to lie on disk. published: its name, size and sha256 where known.

    hub: where it comes from, None when nobody keeps it there in this form; by_hand: where else a person finds
    it; convert: what makes the published file of the hub's one, None when they are the same.
    """

    published: DataFile
    hub: HubFile | None = None
    by_hand: str = ""
    convert: Callable[[Path, Path], None] | None = None


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


_WIKITEXT_REVISION = "b08601e04326c79dfdd32d625aee71d232d685c3"
_RACE_REVISION = "2fec9fd81f1dc971569a9b729c43f2f0e6436637"
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
            _as_it_is(
                f"{level}-{split}",
                f"{level}/{split}-00000-of-00001.parquet",
                HubFile("ehovy/race", _RACE_REVISION, f"{level}/{split}-00000-of-00001.parquet"),
            )
            for level in ("middle", "high")
            for split in ("train", "validation", "test")
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

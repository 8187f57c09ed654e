"""What inputs mean, and that the records of a file are the same however it is packed, cut or resumed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.corpus.reading import blocks
from mlm.corpus.reading.blocks import Block, Cursor, Cutting, cut_sources
from mlm.corpus.reading.documents import documents
from mlm.corpus.reading.inputs import Source, find_sources, zstd
from mlm.corpus.reading.json_array import NOT_CLOSED, ArrayCutter
from mlm.corpus.reading.records import read_records
from mlm.data.bad_data import BadData
from mlm.errors import ConfigError

TEXTS = [f"document {i}: é日\u2028😀\n" * (i % 40) + "." for i in range(300)]
PACKED = {".gz": gzip.compress, ".zst": zstd.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def jsonl(texts: list[str], end: str = "\n", *, ascii_only: bool = False) -> bytes:
    return "".join(json.dumps({"id": 1, "text": t}, ensure_ascii=ascii_only) + end for t in texts).encode()


def texts_of(*paths: Path, cutting: Cutting | None = None) -> list[str]:
    sources = find_sources([str(path) for path in paths]).sources
    return [document.texts[0] for document in documents(sources, cutting)]


def write_parquet(path: Path, texts: list[str], **kind: object) -> Path:
    table = pyarrow.table({"id": range(len(texts)), "text": pyarrow.array(texts, **kind)})
    pyarrow.parquet.write_table(table, path, row_group_size=70)
    return path


@pytest.fixture(params=[700, 4 << 20], ids=["small blocks", "one block"])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", request.param)
    return int(request.param)


@pytest.fixture
def every_kind(tmp_path: Path) -> list[Path]:
    """The same records as each kind of file."""
    raw = jsonl(TEXTS)
    files = {
        "plain.jsonl": raw,
        "no_end.jsonl": raw.removesuffix(b"\n"),
        "crlf.ndjson": jsonl(TEXTS, end="\r\n"),
        "blank.jsonl": jsonl(TEXTS, end="\n\n \r\n"),
        "bom.jsonl": b"\xef\xbb\xbf" + raw,
        "escaped.json": jsonl(TEXTS, ascii_only=True),
        "array.json": json.dumps([{"id": [1, {}], "text": t} for t in TEXTS], indent=1).encode(),
        "bom_array.json": b"\xef\xbb\xbf [" + b",".join(raw.splitlines()) + b"]",
        "unnamed.jsonl": gzip.compress(raw),
        **{f"packed.jsonl{suffix}": pack(raw) for suffix, pack in PACKED.items()},
        "members.jsonl.gz": gzip.compress(raw[:5000]) + gzip.compress(raw[5000:]),
        "frames.jsonl.zst": zstd.compress(raw[:5000]) + zstd.compress(raw[5000:]),
        "array.json.gz": gzip.compress(json.dumps([{"text": t} for t in TEXTS]).encode()),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return [
        *(tmp_path / name for name in files),
        write_parquet(tmp_path / "rows.parquet", TEXTS),
        write_parquet(tmp_path / "large.parquet", TEXTS, type=pyarrow.large_string()),
        write_parquet(
            tmp_path / "coded.parquet", TEXTS, type=pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        ),
    ]


def test_every_kind_of_file_gives_the_same_texts_unaltered(every_kind: list[Path], block_bytes: int) -> None:
    for path in every_kind:
        assert texts_of(path) == TEXTS, path.name


def test_reading_goes_on_after_any_block_without_losing_or_repeating_a_record(
    every_kind: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 6000)
    sources = find_sources([str(path) for path in every_kind]).sources
    cutting = Cutting()

    def texts(cut: list[Block]) -> list[list[str]]:
        return [texts for block in cut for texts in read_records(block, sources, cutting).texts]

    cut = list(cut_sources(sources, cutting, Cursor()))
    assert len(cut) > 4 * len(every_kind)
    for number in random.Random(1).sample(range(len(cut)), 60):
        assert texts(list(cut_sources(sources, cutting, cut[number].next))) == texts(cut[number + 1 :])


def test_a_file_cut_off_anywhere_is_an_error_never_a_shorter_file(tmp_path: Path) -> None:
    raw = jsonl(TEXTS)
    for suffix, pack in PACKED.items():
        packed = pack(raw)
        for size in (len(packed) - 1, len(packed) // 2, 12):
            path = tmp_path / f"cut.jsonl{suffix}"
            path.write_bytes(packed[:size])
            with pytest.raises(BadData, match="ends in the middle of its compressed data"):
                texts_of(path)
    path = write_parquet(tmp_path / "cut.parquet", TEXTS)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadData, match="no Parquet file that can be read"):
        texts_of(path)


def test_damage_inside_compressed_data_is_an_error(tmp_path: Path) -> None:
    for suffix, pack in PACKED.items():
        packed = bytearray(pack(jsonl(TEXTS)))
        packed[len(packed) // 2] ^= 0xFF
        path = tmp_path / f"damaged.jsonl{suffix}"
        path.write_bytes(packed)
        with pytest.raises(
            BadData, match=r"damaged\.jsonl.* (is damaged|ends in the middle|is not JSON|is not UTF-8)"
        ):
            texts_of(path)


def test_units_of_a_text_file(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\n\r\nthree \n\n\nfour\n five\n")
    assert texts_of(path) == ["one\r\ntwo\r\n\r\n\r\nthree \n\n\nfour\n five\n"]
    assert texts_of(path, cutting=Cutting(text_unit="paragraph")) == ["one\r\ntwo", "three ", "four\n five"]
    assert texts_of(path, cutting=Cutting(text_unit="line")) == ["one", "two", "three ", "four", " five"]


def test_paragraphs_do_not_depend_on_where_blocks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(2)
    raw = "".join(rng.choice(["a", "b", "\n", "\r\n", "\n\n", "\r\n\r\n"]) for _ in range(3000)).encode()
    path = tmp_path / "a.txt"
    path.write_bytes(raw)
    cutting = Cutting(text_unit="paragraph")
    whole = texts_of(path, cutting=cutting)
    for size in (1, 2, 3, 5, 64):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
        assert texts_of(path, cutting=cutting) == whole


def test_a_folder_is_read_in_order_of_its_paths_and_names_what_it_passes_over(tmp_path: Path) -> None:
    for name in (
        "b/2.jsonl",
        "b/10.jsonl",
        "a.jsonl",
        "b/c/x.TXT",
        ".hidden/z.jsonl",
        "b/.z.jsonl",
        "README.md",
    ):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jsonl([name]))
    found = find_sources([str(tmp_path / "data")])
    names = [Path(source.path).relative_to(tmp_path / "data").as_posix() for source in found.sources]
    assert names == ["a.jsonl", "b/10.jsonl", "b/2.jsonl", "b/c/x.TXT"]
    assert [Path(name).name for name in found.passed_over] == ["README.md"]
    pattern = find_sources([str(tmp_path / "data" / "**" / "*.jsonl")])
    assert [Path(source.path).name for source in pattern.sources] == ["a.jsonl", "10.jsonl", "2.jsonl"]


def test_everything_wrong_with_the_inputs_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b")
    (tmp_path / "nosuffix").write_text("x")
    (tmp_path / "not.jsonl.gz").write_bytes(jsonl(["x"]))
    (tmp_path / "wide.txt").write_text("abc", encoding="utf-16")
    (tmp_path / "a.jsonl").write_bytes(jsonl(["x"]))
    (tmp_path / "empty").mkdir()
    names = [
        "table.csv",
        "nosuffix",
        "not.jsonl.gz",
        "wide.txt",
        "a.jsonl",
        "./a.jsonl",
        "empty",
        "none.txt",
        "*.xyz",
    ]
    with pytest.raises(ConfigError) as error:
        find_sources([f"{tmp_path}/{name}" for name in names])
    wrong = [problem.wrong for problem in error.value.problems]
    expected = [
        "has the suffix .csv, which is no known kind",
        "has no suffix that says its kind",
        "is no gz data, whatever its name says",
        "is UTF-16",
        "is the same file as",
        "holds no file of a known kind",
        "is no such file or folder",
        "matches no file",
    ]
    assert len(wrong) == len(expected)
    assert all(part in text for part, text in zip(expected, wrong, strict=True)), wrong


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_standard_input_is_read_packed_or_not(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "piped"
    path.write_bytes(PACKED[suffix](jsonl(TEXTS)) if suffix else jsonl(TEXTS))
    with open(path, "rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        sources = find_sources(["-"]).sources
        assert [document.texts[0] for document in documents(sources)] == TEXTS


def test_a_column_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", TEXTS)
    with pytest.raises(BadData, match=r"no column 'body' \(it has id, text\)"):
        texts_of(path, cutting=Cutting(keys=("body",)))
    with pytest.raises(BadData, match="'id' with int64, not text"):
        texts_of(path, cutting=Cutting(keys=("id",)))


def test_a_row_without_text_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    table = pyarrow.table({"text": pyarrow.array(["a", None, "c"])})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    sources = find_sources([str(tmp_path / "a.parquet")]).sources
    said: list[str] = []
    texts = [
        d.texts[0]
        for d in documents(sources, on_flaw=lambda where, flaw: said.append(f"{where} {flaw.detail}"))
    ]
    assert texts == ["a", "c"]
    assert said == [f"{tmp_path}/a.parquet, row 2 has null in the column 'text'"]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "txt"])
def test_a_record_over_the_limit_is_named_and_costs_no_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    texts = ["before", "x" * 50_000, "after", "y" * 3000, "end"]
    raw = "\n\n".join(texts).encode() if kind == "txt" else jsonl(texts)
    raw = json.dumps([{"text": t} for t in texts]).encode() if kind == "json" else raw
    path = tmp_path / f"a.{kind}"
    path.write_bytes(gzip.compress(raw) if kind.endswith("gz") else raw)
    said: list[str] = []
    cutting = Cutting(text_unit="paragraph", max_document_bytes=2000)
    sources = find_sources([str(path)]).sources
    found = documents(sources, cutting, lambda where, flaw: said.append(f"{where} {flaw.detail}"))
    assert [document.texts[0] for document in found] == ["before", "after", "end"]
    assert len(said) == 2
    assert all("bytes long, over --max-document-bytes 2000" in line for line in said)
    places = {"json": [", item 2 ", ", item 4 "], "txt": [", paragraph 2 ", ", paragraph 4 "]}.get(
        kind, [":2 ", ":4 "]
    )
    assert all(place in line for place, line in zip(places, said, strict=True)), said


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\[]{}, \n日😀'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='"]},a', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(JSON_VALUES, max_size=5), st.integers(1, 9), st.booleans(), st.sampled_from([None, 1]))
def test_the_items_of_an_array_are_those_of_json_however_its_bytes_arrive(values, step, ascii_only, indent):
    raw = json.dumps(values, ensure_ascii=ascii_only, indent=indent).encode()
    cutter = ArrayCutter(begun=False, longest=10**6)
    items: list[bytes | int] = []
    for start in range(0, len(raw), step):
        items += cutter.feed(raw[start : start + step])
    items += cutter.finish()
    assert [json.loads(item) for item in items if isinstance(item, bytes)] == values


@pytest.mark.parametrize("raw", [b"[", b"[1,", b'[{"a":1}', b'["a', b'["a\\"'])
def test_an_array_that_is_not_closed_is_noticed(raw: bytes) -> None:
    cutter = ArrayCutter(begun=False, longest=100)
    assert [*cutter.feed(raw), *cutter.finish()][-1] == NOT_CLOSED


def test_a_record_of_exactly_the_limit_is_read(tmp_path: Path, block_bytes: int) -> None:
    raw = jsonl(["x" * 1000])
    (tmp_path / "a.jsonl").write_bytes(raw * 3)
    cutting = Cutting(max_document_bytes=len(raw) - 1)
    assert texts_of(tmp_path / "a.jsonl", cutting=cutting) == ["x" * 1000] * 3
    with pytest.raises(BadData, match=r"a\.jsonl:1 is .* over --max-document-bytes"):
        texts_of(tmp_path / "a.jsonl", cutting=Cutting(max_document_bytes=len(raw) - 2))


def test_text_after_an_array_is_noticed() -> None:
    cutter = ArrayCutter(begun=False, longest=100)
    assert [*cutter.feed(b"[1] [2]"), *cutter.finish()] == [b"1", b"]"]


def test_sources_say_whether_they_can_be_read_anywhere() -> None:
    assert Source("a.jsonl", "jsonl").plain
    assert not Source("a.jsonl.gz", "jsonl", "gz").plain
    assert not Source("-", "jsonl").plain

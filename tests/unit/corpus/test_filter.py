"""mlm-data filter in one process: rules one by one, formats, records as they came, and what it refuses."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mlm.cli.data.main import main

FILLER = [f"word{i}" for i in range(3000)]


def words(count: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(FILLER, k=count))


def write_lines(path: Path, texts: Sequence[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "n": n}) + "\n" for n, text in enumerate(texts)))
    return path


def run(*arguments: object) -> int:
    return main(["filter", *map(str, arguments)])


def report_of(folder: Path, *arguments: object) -> dict[str, Any]:
    path = folder / "report.json"
    assert run(*arguments, "--report", path) == 0
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("limit", "kept"), [(128, [2, 3]), (127, [1, 2, 3]), (0, [0, 1, 2, 3])])
def test_documents_of_fewer_tokens_go_by_the_exact_count(tmp_path: Path, limit: int, kept: list[int]):
    # A byte is a token: no doubt about the count.
    texts = ["a" * 126, "b" * 127, "c" * 128, "d" * 129]
    source, out = write_lines(tmp_path / "in.jsonl", texts), tmp_path / "out.jsonl"
    found = report_of(tmp_path, source, "--out", out, "--tokenizer", "byte", "--min-tokens", limit)
    assert numbers(out) == kept
    assert found["short"] == 4 - len(kept)
    assert found["tokens"] == (510 if limit else 0)
    assert found["kept_tokens"] == (sum(len(texts[n]) for n in kept) if limit else 0)


def test_of_near_duplicates_the_first_stays_and_the_report_shows_the_pair(tmp_path: Path):
    base = words(300, 1).split()
    near = [*base[:290], *words(10, 2).split()]
    texts = [words(300, 3), " ".join(base), words(300, 4), " ".join(near), " ".join(base).upper()]
    source, out = write_lines(tmp_path / "in.jsonl", texts), tmp_path / "out.jsonl"
    found = report_of(tmp_path, source, "--out", out)
    assert numbers(out) == [0, 1, 2]
    assert (found["near_duplicates"], found["copies"], found["kept"]) == (1, 1, 3)
    first, second = (example for example in found["examples"] if example["reason"] == "duplicate")
    assert (first["where"], first["other"]) == (f"{source}:4", f"{source}:2")
    runs = [{tuple(row[i : i + 5]) for i in range(296)} for row in (base, near)]
    assert first["detail"] == f"{len(runs[0] & runs[1]) / len(runs[0] | runs[1]):.4f}"
    assert (second["where"], second["other"], second["detail"]) == (f"{source}:5", f"{source}:2", "1.0000")


def test_the_copy_of_a_dropped_document_goes_for_the_one_that_is_kept(tmp_path: Path):
    base = words(300, 1).split()
    near = " ".join([*base[:290], *words(10, 2).split()])
    source = write_lines(tmp_path / "in.jsonl", [" ".join(base), near, near])
    found = report_of(tmp_path, source, "--out", tmp_path / "out.jsonl")
    assert [(e["where"][-1], e["other"][-1]) for e in found["examples"]] == [("2", "1"), ("3", "1")]
    assert found["examples"][0]["detail"] == found["examples"][1]["detail"] != "1.0000"


def test_with_duplicates_off_all_stay(tmp_path: Path):
    source, out = write_lines(tmp_path / "in.jsonl", [words(300, 1)] * 3), tmp_path / "out.jsonl"
    assert run(source, "--out", out, "--duplicates", "off") == 0
    assert numbers(out) == [0, 1, 2]


def test_texts_without_a_word_are_duplicates_of_nothing(tmp_path: Path):
    source, out = write_lines(tmp_path / "in.jsonl", ["!?" * 100, "!?" * 100, "..."]), tmp_path / "out.jsonl"
    assert run(source, "--out", out, "--min-tokens", 0) == 0
    assert numbers(out) == [0, 1, 2]


def test_what_overlaps_an_evaluation_file_goes_with_the_words_and_the_item_named(tmp_path: Path):
    test = tmp_path / "test.jsonl"
    passage = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    rows = [{"article": "short", "questions": ["another short"]}, {"article": "x", "options": [passage]}]
    test.write_text("".join(json.dumps(row) + "\n" for row in rows))
    quoted = f"{words(200, 1)} One, two, three: four five six seven eight nine ten eleven twelve THIRTEEN! x"
    source = write_lines(tmp_path / "in.jsonl", [quoted, words(200, 2), quoted + " again"])
    found = report_of(tmp_path, source, "--out", tmp_path / "out.jsonl", "--against", test)
    assert numbers(tmp_path / "out.jsonl") == [1]
    assert found["contaminated"] == 2
    example = found["examples"][0]
    assert example["detail"] == passage.removesuffix(" fourteen")
    assert example["other"] == "test.jsonl:2"
    assert "one of 2 evaluation texts; 1 of these are shorter" in found["rules"]["contaminated"]


def test_records_are_written_as_they_came_byte_for_byte(tmp_path: Path):
    text = words(200, 1)
    lines = [
        '{"id": 1.50e+03,  "text" : "' + text + '", "meta":{"b":[1 , 2],"a":null}}',
        '{"text":"\\u00e9\\/ ' + words(200, 2) + '","nan":NaN,"big":123456789012345678901234567890}',
        '{"z":"\u2028","text":"' + words(200, 3) + '"}',
    ]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"\xef\xbb\xbf" + "\r\n\n".join(lines).encode())
    assert run(source, "--out", out) == 0
    assert out.read_bytes() == "".join(line + "\n" for line in lines).encode()


def test_fixed_newlines_change_the_text_and_nothing_else(tmp_path: Path):
    body = words(200, 1)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        '{"a":1.0, "text":"\\r\\n'
        + body
        + '\\r\\n\\r\\n\\r\\nend\\n", "b":"\\r\\n"}\n{"text":"'
        + words(200, 2)
        + '"}\n'
    )
    found = report_of(tmp_path, source, "--out", out, "--fix-newlines")
    first, second = out.read_text().splitlines()
    assert first == '{"a":1.0, "text":"' + body + '\\n\\nend", "b":"\\r\\n"}'
    assert second == source.read_text().splitlines()[1]
    assert found["changed"] == 1


def test_other_formats_become_json_lines(tmp_path: Path):
    texts = [words(200, seed) for seed in range(8)]
    (tmp_path / "a.json").write_text(json.dumps([{"text": texts[0], "n": 1}, {"text": texts[1]}], indent=2))
    (tmp_path / "b.txt").write_text(f"  {texts[2]}\nsecond line\n")
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as file:
        file.write(json.dumps({"text": texts[3]}) + "\n")
    (tmp_path / "d.txt.bz2").write_bytes(bz2.compress(texts[4].encode()))
    out = tmp_path / "out.jsonl"
    assert run(tmp_path, "--out", out) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["text"] for record in found] == [
        *texts[:2],
        f"  {texts[2]}\nsecond line\n",
        texts[3],
        texts[4],
    ]
    assert found[0]["n"] == 1


def test_parquet_rows_become_json_lines(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra data")
    from pyarrow import parquet

    texts = [words(200, seed) for seed in range(3)]
    parquet.write_table(pyarrow.table({"text": [*texts, texts[0]]}), tmp_path / "in.parquet")
    assert run(tmp_path / "in.parquet", "--out", tmp_path / "out.jsonl") == 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"text": text} for text in texts]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_output_is_the_plain_one_compressed_and_the_same_every_time(tmp_path: Path, suffix: str):
    texts = [words(200, seed % 7) for seed in range(20)]
    source, plain = write_lines(tmp_path / "in.jsonl", texts), tmp_path / "plain.jsonl"
    assert run(source, "--out", plain) == 0
    packed = [tmp_path / f"{name}.jsonl{suffix}" for name in "ab"]
    for out in packed:
        assert run(source, "--out", out) == 0
        assert run(out, "--out", tmp_path / f"{out.name[0]}.again.jsonl") == 0
        assert (tmp_path / f"{out.name[0]}.again.jsonl").read_bytes() == plain.read_bytes()
    assert packed[0].read_bytes() == packed[1].read_bytes()


def test_what_was_filtered_loses_nothing_the_second_time(tmp_path: Path):
    texts = [words(150 + seed % 3, seed % 11) for seed in range(60)]
    source = write_lines(tmp_path / "in.jsonl", texts)
    once, twice = tmp_path / "once.jsonl", tmp_path / "twice.jsonl"
    assert run(source, "--out", once) == 0
    assert run(once, "--out", twice) == 0
    assert once.read_bytes() == twice.read_bytes()
    assert len(numbers(once)) == 11


def test_standard_input_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = write_lines(tmp_path / "in.jsonl", [words(200, 1), "short"])
    with open(source) as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run("-", "--out", tmp_path / "out.jsonl") == 0
    assert numbers(tmp_path / "out.jsonl") == [0]


def test_an_invalid_record_stops_it_with_its_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"text": words(200, 1)}) + '\n\n{"text": 5}\n{"txet": "x"}\n')
    assert run(source, "--out", tmp_path / "out.jsonl") == 2
    shown = capsys.readouterr().err
    assert f"{source}:3" in shown
    assert f"{source}:4" in shown
    assert "--on-error skip" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_skipped_records_and_blank_documents_are_counted(tmp_path: Path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = json.dumps({"text": words(200, 1), "n": 0})
    source.write_text(f'{good}\n{{"text": 5}}\nno\n{{"text": " "}}\n{{"text": ""}}\n')
    found = report_of(tmp_path, source, "--out", out, "--on-error", "skip")
    assert numbers(out) == [0]
    assert found["invalid"]["not JSON"] == 1
    assert sum(found["invalid"].values()) == 2
    assert (found["blank"], found["documents"], found["kept"]) == (2, 3, 1)
    assert [flaw.split(" ")[0] for flaw in found["flaws"]] == [f"{source}:2", f"{source}:3"]


def test_an_empty_result_is_an_error_with_the_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = write_lines(tmp_path / "in.jsonl", ["short", "too short"])
    assert run(source, "--out", tmp_path / "out.jsonl") != 0
    assert "would be empty: 2 documents, of them 2 short" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_every_mistake_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "there.jsonl").write_text("")
    status = run(
        *(tmp_path / "no.jsonl", "--out", tmp_path / "there.jsonl", "--duplicates", "70", "--ngram", 0),
        *("--tokenizer", "gpt5", "--report", tmp_path / "r.txt", "--workers", 0),
    )
    assert status == 2
    shown = capsys.readouterr().err
    assert "7 problems" in shown
    for part in ("is there already", "between 0 and 1", "no such file", "gpt5", "r.txt", "--workers 0"):
        assert part in shown


@pytest.mark.parametrize("name", ["out.txt", "out.jsonl.xz", "out"])
def test_an_output_of_an_unknown_kind_is_refused(tmp_path: Path, name: str):
    assert run(write_lines(tmp_path / "in.jsonl", ["x"]), "--out", tmp_path / name) == 2


def test_the_input_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = write_lines(tmp_path / "in.jsonl", [words(200, 1)])
    assert run(source, "--out", source, "--overwrite") == 2
    assert "is the input" in capsys.readouterr().err
    assert numbers(source) == [0]


def test_evaluation_sets_that_are_not_here_are_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("MLM_DATA", raising=False)
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    source = write_lines(tmp_path / "in.jsonl", [words(200, 1)])
    assert run(source, "--out", tmp_path / "out.jsonl", "--against", "lambada", "nothing.txt") == 2
    shown = capsys.readouterr().err
    assert "finds no lambada_test.jsonl here" in shown
    assert "mlm-data fetch lambada" in shown
    assert "nothing.txt" in shown


def test_a_page_of_html_shows_what_users_wrote_as_text(tmp_path: Path):
    from html.parser import HTMLParser

    evil = "<script>alert(1)</script> & "
    source = write_lines(tmp_path / "in.jsonl", [words(200, 1), evil])
    page = tmp_path / "page.html"
    assert run(source, "--out", tmp_path / "out.jsonl", "--report", page) == 0
    tags: list[str] = []
    text = io.StringIO()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

        def handle_data(self, data: str) -> None:
            text.write(data)

    Reader().feed(page.read_text(encoding="utf-8"))
    assert "script" not in tags
    assert evil.strip() in text.getvalue()


def test_planted_test_passages_are_the_only_chapters_that_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = Path(os.environ.get("MLM_TEST_DATA", "/nowhere"))
    if not (folder / "classics" / "classics_small.jsonl").is_file():
        pytest.skip("set MLM_TEST_DATA to a folder with classics/, lambada/ and wikitext103/")
    monkeypatch.setenv("MLM_DATA", str(folder))
    books = (folder / "classics" / "classics_small.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in books]
    lambada = (folder / "lambada" / "lambada_test.jsonl").read_text(encoding="utf-8").splitlines()
    passages = [json.loads(line)["text"] for line in lambada[:5000:500]]
    wiki = (folder / "wikitext-raw" / "wiki.test.raw").read_text(encoding="utf-8").splitlines()
    passages += [line for line in wiki if len(line) > 800][:100:10]
    planted = range(5, 5 + 5 * len(passages), 5)
    for number, passage in zip(planted, passages, strict=True):
        text = records[number]["text"]
        records[number]["text"] = f"{text[:500]} {passage} {text[500:]}"
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({**record, "n": n}) for n, record in enumerate(records)]
    source.write_text("".join(line + "\n" for line in lines))
    found = report_of(
        tmp_path,
        source,
        "--out",
        out,
        "--against",
        "lambada",
        "wikitext103",
        "--min-tokens",
        0,
        "--duplicates",
        "off",
    )
    assert numbers(out) == [n for n in range(len(records)) if n not in planted]
    assert found["contaminated"] == len(passages) == 20
    items = [example["other"].partition(":")[0] for example in found["examples"]]
    assert items[:10] == ["lambada_test.jsonl"] * 10
    assert set(items[10:]) <= {"wiki.test.tokens", "wiki.test.raw"}
    assert out.read_text().splitlines() == [line for n, line in enumerate(lines) if n not in planted]

"""Readers against small files in the official layouts, sound and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlm.errors import ConfigError, DataError
from mlm.finetune.examples import Answer
from mlm.finetune.glue import MNLI_LABELS, read_mnli, read_qqp
from mlm.finetune.race import read_race
from mlm.finetune.squad import read_squad


def race_record(**changes: Any) -> dict[str, Any]:
    record = {
        "article": "A text.",
        "questions": ["What?", "It is _ ."],
        "options": [["a", "b", "c", "d"], ["e", "f", "g", ""]],
        "answers": ["B", "D"],
        "id": "high1.txt",
    }
    return record | changes


def test_race_folders_give_all_questions_by_number_of_file_with_their_school(tmp_path: Path):
    for part, number in (("high", 10), ("high", 9), ("middle", 2)):
        folder = tmp_path / "train" / part
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(json.dumps(race_record(id=f"{part}{number}.txt")))
    examples = read_race(tmp_path / "train")
    expected = ["middle2-0", "middle2-1", "high9-0", "high9-1", "high10-0", "high10-1"]
    assert [example.id for example in examples] == expected
    assert [example.part for example in examples] == ["middle"] * 2 + ["high"] * 4
    assert [example.answer for example in examples[:2]] == [1, 3]
    assert examples[1].options == ("e", "f", "g", "")
    assert [example.id for example in read_race(tmp_path / "train" / "middle")] == expected[:2]


def test_race_jsonl_reads_the_school_from_the_id_and_numbers_records_without_one(tmp_path: Path):
    nameless = {key: value for key, value in race_record().items() if key != "id"}
    path = tmp_path / "some.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in (race_record(), nameless)) + "\n")
    examples = read_race(path)
    assert [(example.id, example.part) for example in examples] == [
        ("high1-0", "high"),
        ("high1-1", "high"),
        ("some.2-0", None),
        ("some.2-1", None),
    ]


def test_every_damaged_race_record_is_named_by_file_and_line(tmp_path: Path):
    path = tmp_path / "damaged.jsonl"
    lines = [
        json.dumps(race_record()),
        "{",
        json.dumps(race_record(answers=["A"])),
        json.dumps(race_record(article="  ")),
        json.dumps(race_record(answers=["E", "D"])),
        json.dumps(race_record(options=[["a", "b", "c"], ["e", "f", "g", "h"]])),
        json.dumps(race_record(questions=["What?", 3])),
        "[]",
    ]
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError) as raised:
        read_race(path)
    said = [f"{problem.where.removeprefix(str(path))} {problem.wrong}" for problem in raised.value.problems]
    assert said == [
        ", line 2 is not JSON (Expecting property name enclosed in double quotes)",
        ", line 3 has 2 questions, 2 lists of options and 1 answers",
        ', line 4 has no text under the key "article"',
        ", line 5, question 1 has the answer 'E', not one of A, B, C, D",
        ", line 6, question 1 has 3 options, not 4",
        ", line 7, question 2 is not a text",
        ", line 8 is not one JSON object",
    ]


def test_a_refusal_names_twenty_damaged_records_and_counts_the_rest(tmp_path: Path):
    path = tmp_path / "damaged.jsonl"
    path.write_text("{\n" * 50)
    with pytest.raises(ConfigError) as raised:
        read_race(path)
    assert len(raised.value.problems) == 21
    assert "has 30 more damaged records" in str(raised.value.problems[-1])


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_folder_that_is_not_races_is_refused_with_the_layout_that_is_wanted(tmp_path: Path, name: str):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"middle/\*\.txt"):
        read_race(tmp_path / name)


MNLI_TRAIN = "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"


def test_mnli_is_read_by_the_names_of_its_columns_and_pairs_without_label_are_left_out(tmp_path: Path):
    (tmp_path / "train.tsv").write_text(
        MNLI_TRAIN
        + '0\t1\t1n\tfiction\tHe said "no.\tShe agreed.\tneutral\tneutral\n'
        + "1\t2\t2e\tfiction\tA\tB\tentailment\t-\n"
        + "2\t3\t3c\tfiction\tC\tD\tneutral\tcontradiction\n"
    )
    for name, text in (("dev_matched", "M"), ("dev_mismatched", "N")):
        (tmp_path / f"{name}.tsv").write_text(
            f"gold_label\tsentence2\tsentence1\tpairID\nentailment\t{text}2\t{text}1\t7e\n"
        )
    training, left_out = read_mnli(tmp_path, training=True)
    assert left_out == 1
    assert [(e.id, e.first, e.second, MNLI_LABELS[e.label]) for e in training] == [
        ("1n", 'He said "no.', "She agreed.", "neutral"),
        ("3c", "C", "D", "contradiction"),
    ]
    development, _ = read_mnli(tmp_path, training=False)
    assert [(e.first, e.second, e.part) for e in development] == [
        ("M1", "M2", "matched"),
        ("N1", "N2", "mismatched"),
    ]


QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def test_qqp_fields_are_unquoted_as_csv_has_them_and_stray_marks_stay(tmp_path: Path):
    (tmp_path / "train.tsv").write_text(
        QQP
        + '1\t2\t3\t"""How"" is it?"\tWhat is a 6" nail?\t0\n'
        + '2\t4\t5\t"Never closed?\tWhy "so"?\t1\n'
        + '3\t6\t7\t"Two\ttabs\tand a\nline end"\tB?\t1\n'
        + "4\t8\t9\tC?\tD?\t0\n"
    )
    pairs, left_out = read_qqp(tmp_path, training=True)
    assert left_out == 0
    assert [(pair.id, pair.first, pair.second, pair.label) for pair in pairs] == [
        ("1", '"How" is it?', 'What is a 6" nail?', 0),
        ("2", '"Never closed?', 'Why "so"?', 1),
        ("3", "Two\ttabs\tand a\nline end", "B?", 1),
        ("4", "C?", "D?", 0),
    ]


def test_damaged_rows_of_a_tsv_are_named_by_their_lines_in_the_file(tmp_path: Path):
    path = tmp_path / "dev.tsv"
    path.write_text(QQP + "1\t2\t3\tA?\tB?\t0\n2\t4\t5\tC?\n3\t6\t7\tD?\tE?\tmaybe\n")
    with pytest.raises(ConfigError) as raised:
        read_qqp(path, training=False)
    assert [problem.where for problem in raised.value.problems] == [f"{path}, line 3", f"{path}, line 4"]
    path.write_text("a\tb\n")
    with pytest.raises(DataError, match="line 1 has no column question1 and none question2"):
        read_qqp(path, training=False)


def squad_file(path: Path, *questions: dict[str, Any], context: str = "Über Tōkyō says 😀 hello.") -> Path:
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}))
    return path


def test_squad_answers_are_pieces_of_the_context_counted_in_characters(tmp_path: Path):
    path = squad_file(
        tmp_path / "dev.json",
        {"id": "a", "question": "Who?", "answers": [{"text": "Tōkyō", "answer_start": 5}]},
        {"id": "b", "question": "What?", "answers": [{"text": "hello", "answer_start": 18}]},
    )
    assert [example.answers for example in read_squad(path, impossible=False)] == [
        (Answer("Tōkyō", 5),),
        (Answer("hello", 18),),
    ]


def test_squad_2_has_questions_without_an_answer_and_squad_1_refuses_them(tmp_path: Path):
    path = squad_file(
        tmp_path / "dev.json",
        {
            "id": "a",
            "question": "Who?",
            "answers": [],
            "is_impossible": True,
            "plausible_answers": [{"text": "x", "answer_start": 0}],
        },
    )
    assert read_squad(path, impossible=True)[0].answers == ()
    with pytest.raises(ConfigError, match=r"qas\[0\] \(id a\) has no answer.*finetune=squad_v2"):
        read_squad(path, impossible=False)


def test_every_damaged_squad_question_is_named(tmp_path: Path):
    sound = {"id": "a", "question": "Who?", "answers": [{"text": "Über", "answer_start": 0}]}
    path = squad_file(
        tmp_path / "dev.json",
        sound,
        sound,
        {**sound, "id": "c", "answers": [{"text": "Über", "answer_start": 1}]},
        {**sound, "id": "d", "question": ""},
        {**sound, "id": "e", "is_impossible": True},
    )
    with pytest.raises(ConfigError) as raised:
        read_squad(path, impossible=True)
    said = [str(problem).removeprefix(f"{path}, ") for problem in raised.value.problems]
    assert len(said) == 4
    assert said[0].startswith("data[0].paragraphs[0].qas[2] (id c) has the answer 'Über' at 1, where")
    assert said[1].startswith('data[0].paragraphs[0].qas[3] has no text under the key "question"')
    assert said[2].startswith("data[0].paragraphs[0].qas[4] (id e) is impossible and has answers")
    assert said[3].startswith("question a has the id of an earlier question")

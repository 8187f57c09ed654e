"""SQuAD's files, versions 1.1 and 2.0: JSON of articles, paragraphs and questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlm.data.bad_data import BadData
from mlm.finetune.examples import Answer, Damage, SpanExample, is_text

_REMEDY = 'give SQuAD\'s JSON, {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}'
_MEND = "mend it, or leave it out"


def read_squad(path: Path, *, impossible: bool) -> list[SpanExample]:
    """Every question, in the file's order.

    impossible: whether questions may have no answer (version 2.0). Raises BadData when the file is no such
    JSON, ConfigError naming file, article, paragraph and question of everything that is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadData(str(path), f"cannot be read ({error.strerror})", _REMEDY) from None
    except UnicodeDecodeError:
        raise BadData(str(path), "is not UTF-8", _REMEDY) from None
    except json.JSONDecodeError as error:
        raise BadData(f"{path}, line {error.lineno:,}", f"is not JSON ({error.msg})", _REMEDY) from None
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise BadData(str(path), 'has no list under the key "data"', _REMEDY)
    damage, examples = Damage(), []
    for number, article in enumerate(articles):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            damage.add(f"{path}, data[{number}]", 'has no list under the key "paragraphs"', _MEND)
            continue
        for place, paragraph in enumerate(paragraphs):
            where = f"{path}, data[{number}].paragraphs[{place}]"
            examples += _questions(paragraph, where, impossible, damage)
    _unique_ids(examples, path, damage)
    damage.refuse(str(path))
    if not examples:
        raise BadData(str(path), "holds no question", _REMEDY)
    return examples


def _questions(paragraph: Any, where: str, impossible: bool, damage: Damage) -> list[SpanExample]:
    context = paragraph.get("context") if isinstance(paragraph, dict) else None
    if not isinstance(context, str) or not is_text(context):
        damage.add(where, 'has no text under the key "context"', _MEND)
        return []
    questions = paragraph.get("qas")
    if not isinstance(questions, list):
        damage.add(where, 'has no list under the key "qas"', _MEND)
        return []
    found = []
    for number, question in enumerate(questions):
        place = f"{where}.qas[{number}]"
        if not isinstance(question, dict) or not is_text(question.get("question")):
            damage.add(place, 'has no text under the key "question"', _MEND)
            continue
        if not isinstance(question.get("id"), str):
            damage.add(place, 'has no text under the key "id"', _MEND)
            continue
        answers = _answers(question, context, f"{place} (id {question['id']})", impossible, damage)
        if answers is not None:
            found.append(SpanExample(question["id"], context, question["question"], answers))
    return found


def _answers(
    question: dict[str, Any], context: str, where: str, impossible: bool, damage: Damage
) -> tuple[Answer, ...] | None:
    """The accepted answers; none of a question that has none; None when they are damaged."""
    is_impossible, answers = question.get("is_impossible", False), question.get("answers")
    if not isinstance(answers, list) or not isinstance(is_impossible, bool):
        wrong = 'has no list under the key "answers", or an "is_impossible" that is no truth value'
        damage.add(where, wrong, _MEND)
        return None
    if is_impossible or not answers:
        if not impossible:
            damage.add(where, "has no answer, which version 1.1 does not know", "use finetune=squad_v2")
        elif answers:
            damage.add(where, "is impossible and has answers", _MEND)
        elif not is_impossible:
            damage.add(where, "has no answer and is not marked as impossible", _MEND)
        else:
            return ()
        return None
    found = []
    for answer in answers:
        text, start = (answer.get("text"), answer.get("answer_start")) if isinstance(answer, dict) else (0, 0)
        if not isinstance(text, str) or not text or type(start) is not int:
            damage.add(where, 'has an answer without "text" or "answer_start"', _MEND)
            return None
        if start < 0 or context[start : start + len(text)] != text:
            there = context[max(0, start) : max(0, start) + len(text)]
            wrong = f"has the answer {text!r} at {start:,}, where the context has {there!r}"
            damage.add(where, wrong, "count answer_start in characters from 0")
            return None
        found.append(Answer(text, start))
    return tuple(found)


def _unique_ids(examples: list[SpanExample], path: Path, damage: Damage) -> None:
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            damage.add(
                f"{path}, question {example.id}", "has the id of an earlier question", "give it its own"
            )
        seen.add(example.id)

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from mlm.data.tokenizers import ByteTokenizer, CharTokenizer, Gpt2Tokenizer
from mlm.errors import DataError
from mlm.eval.perplexity import Perplexity
from mlm.eval.tasks import TASKS
from tests.unit.eval.known_models import by_name, score, uniform_scores

TEXT = "the cat sat on the mat\n\nand the naïve dog barked\n"


def test_a_uniform_model_has_perplexity_v_by_token_and_its_closed_forms_by_word_and_byte(
    tmp_path: Path, gpt2: Gpt2Tokenizer
):
    path = tmp_path / "mine.txt"
    path.write_text(TEXT)
    for row in Perplexity().variants({"text": path}, gpt2, 4, None):
        figures = row.summarise(uniform_scores(row.segments, 50257))
        tokens = len(gpt2.encode(TEXT))
        assert figures["n_tokens"] == tokens
        assert figures["ppl_token"] == pytest.approx(50257, rel=1e-12)
        assert figures["ppl_word"] == pytest.approx(50257 ** (tokens / 11), rel=1e-9)
        assert figures["bits_per_byte"] == pytest.approx(tokens * math.log2(50257) / len(TEXT.encode()))


def test_documents_of_jsonl_are_scored_apart_from_their_first_token_on(tmp_path: Path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "abca"}\n{"text": "b\\u2028\\u0085"}\n')
    rows = by_name(Perplexity().variants({"text": path}, ByteTokenizer(), 64, None))
    first, second = rows["non-overlapping"].segments
    assert first.tokens.tolist() == [256, *b"abca"]
    assert second.tokens.tolist() == [256, *"b\u2028\u0085".encode()]
    assert (first.scored, second.scored) == (4, 6)


def test_a_unigram_model_gets_its_own_perplexity_with_and_without_end_of_text(tmp_path: Path):
    path = tmp_path / "mine.txt"
    path.write_text("aab" * 40)
    chances = {0: 0.5, 1: 0.25}
    rows = Perplexity().variants({"text": path}, CharTokenizer("ab"), 16, None)
    for row in rows:  # no end-of-text token: the first a is not scored
        figures = row.summarise(score(row.segments, lambda _: chances))
        assert figures["nll_total"] == pytest.approx(79 * math.log(2) + 40 * math.log(4), rel=1e-12)
        assert figures["n_tokens"] == 119
        assert "first token not scored" in row.protocol
    chances = {ord("a"): 0.5, ord("b"): 0.25}
    for row in Perplexity().variants({"text": path}, ByteTokenizer(), 16, None):
        figures = row.summarise(score(row.segments, lambda _: chances))
        assert figures["nll_total"] == pytest.approx(80 * math.log(2) + 40 * math.log(4), rel=1e-12)


@pytest.mark.parametrize(("name", "said"), [("a.txt", "1 of 2 lines"), ("a.jsonl", "1 of 2 documents")])
def test_a_limit_is_said(tmp_path: Path, name: str, said: str):
    path = tmp_path / name
    lines = ["first one", "second one"]
    path.write_text("".join((json.dumps({"text": t}) if name == "a.jsonl" else t) + "\n" for t in lines))
    row = Perplexity().variants({"text": path}, ByteTokenizer(), 64, 1)[0]
    assert f"only the first {said}" in row.protocol
    assert row.summarise(uniform_scores(row.segments, 2))["n_words"] == 2


def test_a_document_without_anything_to_predict_is_refused_with_file_and_line(tmp_path: Path):
    path = tmp_path / "short.jsonl"
    path.write_text('{"text": "ab"}\n{"text": "a"}\n')
    with pytest.raises(DataError, match=r"short\.jsonl, line 2 has fewer than two tokens"):
        Perplexity().variants({"text": path}, CharTokenizer("ab"), 64, None)


def test_the_tasks_stand_in_the_table_by_name_and_need_no_torch():
    assert {name: task.name for name, task in TASKS.items()} == {n: n for n in TASKS}
    assert all(task.summary and "\n" not in task.summary for task in TASKS.values())
    code = "import sys, mlm.eval.tasks; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

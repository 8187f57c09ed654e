from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from mlm.data.tokenizers import ByteTokenizer, CharTokenizer, Gpt2Tokenizer, Tokenizer
from mlm.errors import DataError
from mlm.eval.files import find_files
from mlm.eval.lambada import Lambada
from mlm.eval.requests import Scores, Variant
from tests.unit.eval.known_models import by_name, score, uniform_scores

PASSAGES = [
    "he took the drapes down and folded the drapes",
    'She looked at me.\n\n"Nadia',
    "they all sat down  and waited for Gailynn",
    "I do not know who that is, said unbelievably",
    "naïve people drink café",
]
WORDS = ["drapes", '"Nadia', "Gailynn", "unbelievably", "café"]


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    found = {"openai": tmp_path / "lambada_test.jsonl", "original": tmp_path / "lambada_test_plain_text.txt"}
    found["openai"].write_text("".join(json.dumps({"text": text}) + "\n" for text in PASSAGES))
    found["original"].write_text("".join(" ".join(text.lower().split()) + "\n" for text in PASSAGES))
    return found


def targets(tokenizer: Tokenizer, row: Variant) -> list[str]:
    return [tokenizer.decode(segment.tokens[-segment.scored :]) for segment in row.segments]


@pytest.fixture(params=["gpt2", "sentencepiece", "byte"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return ByteTokenizer() if request.param == "byte" else request.getfixturevalue(request.param)


def test_the_target_is_the_text_after_the_last_whitespace_for_any_tokenizer(
    paths: dict[str, Path], tokenizer: Tokenizer
):
    rows = by_name(Lambada().variants(paths, tokenizer, 1024, None))
    assert [text.strip() for text in targets(tokenizer, rows["paper"])] == WORDS
    assert [text.strip() for text in targets(tokenizer, rows["original tokenised"])] == [
        word.lower() for word in WORDS
    ]
    assert rows["paper"].summarise(uniform_scores(rows["paper"].segments, 9))["split_mismatches"] == 0


def test_the_ids_of_context_and_target_are_those_of_the_whole(paths: dict[str, Path], tokenizer: Tokenizer):
    row = by_name(Lambada().variants(paths, tokenizer, 1024, None))["paper"]
    for segment, text, word in zip(row.segments, PASSAGES, WORDS, strict=True):
        before = text[: -len(word)].strip()
        assert segment.tokens.tolist() == tokenizer.encode(f"{before} {word}").tolist()
        assert segment.tokens[: -segment.scored].tolist() == tokenizer.encode(before).tolist()


def test_the_harness_keeps_the_whitespace_after_the_last_space(paths: dict[str, Path], gpt2: Gpt2Tokenizer):
    row = by_name(Lambada().variants(paths, gpt2, 1024, None))["lm-eval lambada_openai"]
    assert targets(gpt2, row) == [" drapes", ' me.\n\n"Nadia', " Gailynn", " unbelievably", " café"]


class Greedy(Tokenizer):
    """Pairs of characters, so that a token can span the border between context and target."""

    kind, vocab_size, eod, fingerprint = "pairs", 1 << 16, None, ""

    def encode(self, text: str) -> np.ndarray:
        text += "\0" * (len(text) % 2)
        return np.asarray(
            [ord(a) * 256 + ord(b) for a, b in zip(text[::2], text[1::2], strict=True)], np.int32
        )

    def _decode(self, ids: list[int]) -> str:
        return "".join(chr(i // 256) + chr(i % 256) for i in ids)


def test_a_token_across_the_border_is_counted_and_scored(tmp_path: Path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"text": "abcd ef"}\n{"text": "abc ef"}\n')
    row = by_name(Lambada().variants({"openai": path}, Greedy(), 1024, None))["paper"]
    assert row.summarise(uniform_scores(row.segments, 2))["split_mismatches"] == 1
    assert targets(Greedy(), row) == [" ef\0", "c ef"]


def test_a_uniform_model_has_perplexity_v_to_the_mean_pieces_and_no_word_right(
    paths: dict[str, Path], gpt2: Gpt2Tokenizer
):
    row = by_name(Lambada().variants(paths, gpt2, 1024, None))["paper"]
    figures = row.summarise(uniform_scores(row.segments, 50257))
    pieces = [len(gpt2.encode(" " + word)) for word in WORDS]
    assert figures["ppl_last_word"] == pytest.approx(50257 ** (sum(pieces) / 5), rel=1e-9)
    assert figures["ppl_token"] == pytest.approx(50257, rel=1e-12)
    assert figures["accuracy"] == figures["last_token_accuracy"] == 0
    assert {n: figures[f"pieces_{n}"] for n in set(pieces)} == {n: pieces.count(n) for n in set(pieces)}
    assert json.loads(json.dumps(figures)) == figures


def test_a_model_that_knows_the_last_word_is_always_right_and_one_that_misses_its_first_piece_never(
    paths: dict[str, Path], gpt2: Gpt2Tokenizer
):
    row = by_name(Lambada().variants(paths, gpt2, 1024, None))["paper"]
    assert any(segment.scored > 1 for segment in row.segments)
    known = {
        tuple(s.tokens[:at].tolist()): int(s.tokens[at])
        for s in row.segments
        for at in range(1, len(s.tokens))
    }
    firsts = {tuple(s.tokens[: -s.scored].tolist()) for s in row.segments}

    def knows(seen: list[int]) -> dict[int, float]:
        return {known[tuple(seen)]: 0.9, 0: 0.1}

    def misses_the_first(seen: list[int]) -> dict[int, float]:
        right = known[tuple(seen)]
        return {right: 0.1, 0: 0.9} if tuple(seen) in firsts else {right: 0.9, 0: 0.1}

    figures = row.summarise(score(row.segments, knows))
    assert figures["accuracy"] == figures["last_token_accuracy"] == 1
    assert figures["ppl_last_word"] == pytest.approx((1 / 0.9) ** (figures["n_tokens"] / 5))
    figures = row.summarise(score(row.segments, misses_the_first))
    assert figures["accuracy"] == 0
    assert figures["last_token_accuracy"] == sum(s.scored > 1 for s in row.segments) / 5


def test_a_long_context_loses_its_beginning_and_is_counted_but_the_word_is_whole(
    paths: dict[str, Path], gpt2: Gpt2Tokenizer
):
    whole = by_name(Lambada().variants(paths, gpt2, 1024, None))["paper"]
    short = by_name(Lambada().variants(paths, gpt2, 8, None))["paper"]
    assert whole.is_paper
    assert not short.is_paper
    assert "not in the paper's context of 1,024 but in the model's 8" in short.protocol
    for long, cut in zip(whole.segments, short.segments, strict=True):
        assert len(cut.tokens) == min(9, len(long.tokens))
        assert cut.tokens.tolist() == long.tokens[-len(cut.tokens) :].tolist()
        assert cut.scored == long.scored
    longer = sum(len(segment.tokens) > 9 for segment in whole.segments)
    assert 0 < longer == short.summarise(uniform_scores(short.segments, 2))["truncated"]


def test_a_limit_is_said(paths: dict[str, Path], gpt2: Gpt2Tokenizer):
    row = Lambada().variants(paths, gpt2, 1024, 2)[0]
    figures = row.summarise(
        Scores(np.asarray([math.log(4), 0.0]), np.asarray([True, False]), np.asarray([True, True]))
    )
    assert (figures["n_items"], figures["n_items_in_file"]) == (2, 5)
    assert (figures["accuracy"], figures["last_token_accuracy"]) == (0.5, 1)
    assert figures["ppl_last_word"] == pytest.approx(2)
    assert not row.is_paper
    assert "only the first 2 of 5 passages" in row.protocol


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"text": "word"}', "has no word before its last one"),
        ('{"text": "  "}', "blank"),
        ('{"text": 3}', "no string"),
        ('{"passage": "a b"}', "no string"),
        ("[1]", "no string"),
        ('{"text": "a b"', "is not JSON"),
        ('{"text": "a \\ud800"}', "surrogate"),
        ('{"text": "a ' + "b" * 70 + '"}', "more than the model's seq_length 64"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(tmp_path: Path, line: str, wrong: str):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "one two"}\n\n' + line + "\n")
    with pytest.raises(DataError, match=rf"bad\.jsonl, line 3 .*{wrong}"):
        Lambada().variants({"openai": path}, ByteTokenizer(), 64, None)


def test_an_unknown_character_is_refused_with_file_and_line(tmp_path: Path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "a b"}\n{"text": "a z"}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl, line 2: character 'z'"):
        Lambada().variants({"openai": path}, CharTokenizer(" ab"), 64, None)


def test_the_published_files_have_5153_passages_and_the_known_pieces(published: Path, gpt2: Gpt2Tokenizer):
    task = Lambada()
    paths, problems = find_files(task.name, task.default_files, {})
    assert not problems
    rows = by_name(task.variants(paths, gpt2, 1024, None))
    figures = {n: row.summarise(uniform_scores(row.segments, 50257)) for n, row in rows.items()}
    paper = figures["paper"]
    assert {f["n_items"] for f in figures.values()} == {5_153}
    assert {key: n for key, n in paper.items() if key.startswith("pieces_")} == {
        "pieces_1": 4_013,
        "pieces_2": 913,
        "pieces_3": 208,
        "pieces_4": 16,
        "pieces_5": 3,
    }
    assert all(f["file_published"] and not f["truncated"] for f in figures.values())
    assert all(not f["split_mismatches"] for f in figures.values())
    assert rows["paper"].is_paper
    assert "not the published" not in rows["paper"].protocol

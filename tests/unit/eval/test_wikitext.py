from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from mlm.data.tokenizers import ByteTokenizer, CharTokenizer, Gpt2Tokenizer, SentencePieceTokenizer
from mlm.errors import DataError
from mlm.eval.files import find_files
from mlm.eval.requests import Scores
from mlm.eval.wikitext import WikiText103, detokenized, documents, original_words
from tests.unit.eval.known_models import by_name, score, uniform_scores

ARTICLES = (
    " \n = Robert Boulter = \n \n Robert Boulter is an English film , television and theatre actor . He had "
    "a guest @-@ starring role in the series The Bill in 2 @,@ 000 . \n \n = = Career = = \n \n In 2006 , he "
    'played " Darren " at the <unk> Theatre ( London ) , where it was 30 ° C and 1 @.@ 5 m high ; he said : '
    "' yes ' ! \n \n = Du Fu = \n \n Du Fu 's poems were the boys ' own { a } [ b ] ? \n = = = Works = = = \n"
)
PROSE = (
    "\n= Robert Boulter =\n\nRobert Boulter is an English film, television and theatre actor. He had a "
    "guest-starring role in the series The Bill in 2,000.\n\n== Career ==\n\nIn 2006, he "
    'played "Darren" at the <unk> Theatre (London), where it was 30°C and 1.5 m high; he said: '
    "'yes'!\n\n= Du Fu =\n\nDu Fu's poems were the boys' own {a} [b]?\n=== Works ===\n"
)


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    found = {"tokens": tmp_path / "wiki.test.tokens", "raw": tmp_path / "wiki.test.raw"}
    found["tokens"].write_text(ARTICLES)
    found["raw"].write_text(ARTICLES.replace("<unk>", "Globe"))
    return found


def test_the_detokenizer_writes_prose():
    assert detokenized(ARTICLES) == PROSE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the dogs ' bones", "the dogs' bones"),
        ("well @-@ known 3 @.@ 14", "well-known 3.14"),
        ("a N b", "a 1 b"),
        ("( a ) [ b ] { c }", "(a) [b] {c}"),
        ('he said " no " .', 'he said " no ".'.replace('" no "', '"no"').replace('".', '" .')),
        ("= = = = x = = = =", "==== x ===="),
        ("no space,here :none", "no space,here :none"),
    ],
)
def test_each_rule_of_the_detokenizer(text: str, expected: str):
    assert detokenized(text) == expected


def test_original_words_are_the_pieces_between_single_spaces():
    pieces = ["=", "a", "=", "\n", "\n", "b", "", "c"]
    assert original_words(" \n = a = \n \n b  c \n ") == len(pieces)


def test_a_document_begins_at_each_title_but_not_at_a_heading():
    first, second = documents(ARTICLES)
    assert first.startswith(" = Robert Boulter = ")
    assert "= = Career = =" in first
    assert second.startswith(" = Du Fu = ")
    assert "= = = Works = = =" in second


@pytest.mark.parametrize("window", [8, 33, 200, 1024, 2048])
def test_a_uniform_model_has_perplexity_v_by_token_and_its_closed_form_by_word(
    paths: dict[str, Path], gpt2: Gpt2Tokenizer, window: int
):
    words = len(ARTICLES.strip().split(" ")) - 1
    tokens = len(gpt2.encode(PROSE)) - 1
    for row in WikiText103().variants(paths, gpt2, window, None):
        figures = row.summarise(uniform_scores(row.segments, 50257))
        assert figures["ppl_token"] == pytest.approx(50257, rel=1e-12), row.name
        assert figures["nll_total"] == pytest.approx(figures["n_tokens"] * math.log(50257))
        if row.name in ("paper", "non-overlapping") or row.name.startswith("stride"):
            assert figures["ppl_word"] == pytest.approx(50257 ** (tokens / words), rel=1e-9)


def test_every_figure_is_what_its_counts_say(paths: dict[str, Path], gpt2: Gpt2Tokenizer):
    for row in WikiText103().variants(paths, gpt2, 16, None):
        nll = np.random.default_rng(1).uniform(1, 9, len(row.segments))
        figures = row.summarise(Scores(nll, nll > 0, nll > 0))
        assert figures["nll_total"] == pytest.approx(nll.sum())
        assert figures["ppl_word"] == pytest.approx(math.exp(figures["nll_total"] / figures["n_words"]))
        assert figures["ppl_token"] == pytest.approx(math.exp(figures["nll_total"] / figures["n_tokens"]))
        assert figures["bits_per_byte"] == pytest.approx(
            math.log2(math.exp(figures["nll_total"])) / figures["n_bytes"]
        )
        assert figures["n_tokens"] == sum(segment.scored for segment in row.segments)
        assert row.headline in figures
        assert json.loads(json.dumps(figures)) == figures


def test_a_bigram_model_gets_its_own_perplexity_at_any_stride(paths: dict[str, Path]):
    text, vocabulary = detokenized(ARTICLES), sorted(set(ARTICLES))
    tokenizer = CharTokenizer("".join(vocabulary))
    size = len(vocabulary)

    def model(seen: list[int]) -> dict[int, float]:
        """The character one further on in the alphabet has half of the probability."""
        favourite = (seen[-1] + 1) % size
        return {c: 0.5 if c == favourite else 0.5 / (size - 1) for c in range(size)}

    pairs = list(itertools.pairwise(text))
    hits = sum(vocabulary.index(b) == (vocabulary.index(a) + 1) % size for a, b in pairs)
    expected = hits * math.log(2) + (len(pairs) - hits) * math.log(2 * (size - 1))
    rows = by_name(WikiText103().variants({"tokens": paths["tokens"]}, tokenizer, 50, None))
    assert hits > 0
    for name in ("paper", "stride 25", "non-overlapping"):
        figures = rows[name].summarise(score(rows[name].segments, model))
        assert figures["nll_total"] == pytest.approx(expected, rel=1e-12), name


def test_words_are_counted_alike_whatever_the_tokenizer(
    paths: dict[str, Path], gpt2: Gpt2Tokenizer, sentencepiece: SentencePieceTokenizer
):
    counts = []
    for tokenizer in (gpt2, sentencepiece, ByteTokenizer()):
        rows = WikiText103().variants(paths, tokenizer, 64, None)
        counts.append([row.summarise(uniform_scores(row.segments, 2))["n_words"] for row in rows])
    assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize(
    ("context", "limit", "is_paper"),
    [(1024, None, True), (2048, None, True), (512, None, False), (1024, 2, False)],
)
def test_only_the_papers_window_over_the_whole_text_is_the_papers_protocol(
    paths: dict[str, Path], gpt2: Gpt2Tokenizer, context: int, limit: int | None, is_paper: bool
):
    rows = by_name(WikiText103().variants(paths, gpt2, context, limit))
    assert [name for name, row in rows.items() if row.is_paper] == (["paper"] if is_paper else [])
    assert ("not the paper's window of 1,024" in rows["paper"].protocol) == (context < 1024)
    assert ("only the first 2 of 7 lines" in rows["paper"].protocol) == (limit is not None)
    assert "not the published file" in rows["paper"].protocol


def test_a_limit_gives_every_row_the_same_lines(paths: dict[str, Path], gpt2: Gpt2Tokenizer):
    rows = WikiText103().variants(paths, gpt2, 64, 3)
    figures = [row.summarise(uniform_scores(row.segments, 2)) for row in rows]
    assert {(f["lines"], f["lines_in_file"]) for f in figures} == {(3, 7)}
    start = ARTICLES[: ARTICLES.index(" \n In 2006")].replace("<unk>", "Globe")
    assert {f["n_words"] for f in figures[:-1]} == {len(start.strip().split(" ")) - 1}


def test_without_the_raw_file_the_harness_row_says_which_file_it_is_on(
    paths: dict[str, Path], gpt2: Gpt2Tokenizer
):
    names = [row.name for row in WikiText103().variants({"tokens": paths["tokens"]}, gpt2, 256, None)]
    assert names == ["paper", "stride 128", "non-overlapping", "lm-eval wikitext (tokens file)"]


@pytest.mark.parametrize("text", ["word", " a \n", "\n"])
def test_a_text_too_short_to_predict_in_is_refused_by_name(tmp_path: Path, gpt2: Gpt2Tokenizer, text: str):
    path = tmp_path / "short.tokens"
    path.write_text(text)
    with pytest.raises(DataError, match=r"short\.tokens .*(fewer than two|no text)"):
        WikiText103().variants({"tokens": path}, gpt2, 64, None)


def test_a_character_the_model_does_not_know_is_refused_with_the_file(paths: dict[str, Path]):
    with pytest.raises(DataError, match=r"wiki\.test\.tokens: character .* is not among"):
        WikiText103().variants(paths, CharTokenizer("abc"), 64, None)


def test_the_published_files_have_the_papers_counts(published: Path, gpt2: Gpt2Tokenizer):
    task = WikiText103()
    paths, problems = find_files(task.name, task.default_files, {})
    assert not problems
    rows = by_name(task.variants(paths, gpt2, 1024, None))
    figures = {n: row.summarise(uniform_scores(row.segments, 50257)) for n, row in rows.items()}
    paper = figures["paper"]
    assert (paper["T_o"], paper["T"], paper["T_left_stripped"]) == (245_566, 270_330, 270_329)
    assert paper["token_ratio"] == 1.1008449901248143
    assert paper["n_tokens"] == figures["stride 512"]["n_tokens"] == figures["non-overlapping"]["n_tokens"]
    assert paper["ppl_word"] == pytest.approx(50257**1.1008449901248143, rel=1e-9)
    assert rows["paper"].is_paper
    assert all(f["file_published"] for f in figures.values())
    # lm-evaluation-harness reports 62 documents; the words it divides by are not T_o.
    assert figures["lm-eval wikitext"]["documents"] == 62
    assert not any("differs" in row.protocol for row in rows.values())

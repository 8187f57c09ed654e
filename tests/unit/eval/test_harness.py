"""Against lm-evaluation-harness itself, where it is installed: its texts, splits, windows and divisors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.data.tokenizers import Gpt2Tokenizer
from mlm.eval.lambada import Lambada
from mlm.eval.wikitext import RAW, WikiText103, detokenized, documents
from tests.unit.eval.known_models import by_name, uniform_scores
from tests.unit.eval.test_lambada import PASSAGES
from tests.unit.eval.test_wikitext import ARTICLES

pytest.importorskip("lm_eval", reason="lm_eval is not installed")

from lm_eval.api.metrics import bits_per_byte, weighted_perplexity
from lm_eval.api.model import TemplateLM
from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

MARKS = [*" \n'\"sN1()[]{}=.,;:!?°/", " @-@ ", " @,@ ", "word", "/' 1/"]


@given(st.lists(st.sampled_from(MARKS), max_size=40).map("".join))
def test_the_detokenizer_is_the_harness_s(text: str):
    assert detokenized(text) == wikitext_detokenizer({"page": text})


class Encoder:
    """As much of a model as the harness's split of context and continuation asks for."""

    backend = "causal"

    def __init__(self, tokenizer: Gpt2Tokenizer):
        self.tokenizer = tokenizer

    def tok_encode(self, text: str, **_: Any) -> list[int]:
        return self.tokenizer.encode(text).tolist()


def harness_wikitext(text: str, gpt2: Gpt2Tokenizer, context: int) -> list[tuple[list[int], int]]:
    found = []
    for page in documents(text):
        ids = gpt2.encode(wikitext_detokenizer({"page": page})).tolist()
        for seen, scored in map(make_disjoint_window, get_rolling_token_windows(ids, 50256, context, 1)):
            found.append((seen + scored, len(scored)))
    return found


@pytest.mark.parametrize("context", [1, 2, 7, 16, 50, 1024])
def test_wikitext_segments_are_the_harness_s_rolling_windows(
    tmp_path: Path, gpt2: Gpt2Tokenizer, context: int
):
    path = tmp_path / "raw"
    path.write_text(ARTICLES)
    row = by_name(WikiText103().variants({"tokens": path, "raw": path}, gpt2, context, None))[
        "lm-eval wikitext"
    ]
    ours = [(segment.tokens.tolist(), segment.scored) for segment in row.segments]
    assert ours == harness_wikitext(ARTICLES, gpt2, context)


def check_wikitext_figures(path: Path, gpt2: Gpt2Tokenizer) -> None:
    row = by_name(WikiText103().variants({"tokens": path, "raw": path}, gpt2, 1024, None))["lm-eval wikitext"]
    figures = row.summarise(uniform_scores(row.segments, 2))
    pages = documents(path.read_bytes().decode())
    share = [-figures["nll_total"] / len(pages)] * len(pages)
    results = [process_results({"page": page}, [part]) for page, part in zip(pages, share, strict=True)]
    for name in ("word_perplexity", "byte_perplexity"):
        assert figures[name] == pytest.approx(weighted_perplexity([r[name] for r in results]), rel=1e-12)
    bits = bits_per_byte([result["bits_per_byte"] for result in results])
    assert figures["bits_per_byte"] == pytest.approx(bits, rel=1e-12)


def test_wikitext_figures_are_the_harness_s(tmp_path: Path, gpt2: Gpt2Tokenizer):
    path = tmp_path / "raw"
    path.write_text(ARTICLES)
    check_wikitext_figures(path, gpt2)


def test_on_the_published_raw_file_too(published: Path, gpt2: Gpt2Tokenizer):
    path = published / "wikitext-raw" / RAW.name
    check_wikitext_figures(path, gpt2)
    text = path.read_bytes().decode()
    assert detokenized(text) == wikitext_detokenizer({"page": text})


def check_lambada_split(path: Path, gpt2: Gpt2Tokenizer, context: int) -> None:
    row = by_name(Lambada().variants({"openai": path}, gpt2, context, None))["lm-eval lambada_openai"]
    texts = [json.loads(line)["text"] for line in path.read_bytes().decode().split("\n") if line]
    for segment, text in zip(row.segments, texts, strict=True):
        before, after = " ".join(text.split(" ")[:-1]), " " + text.split(" ")[-1]
        seen, scored = TemplateLM._encode_pair(Encoder(gpt2), before, after)
        assert segment.tokens.tolist() == (seen + scored)[-(context + 1) :], text
        assert segment.scored == len(scored), text


@pytest.mark.parametrize("context", [12, 1024])
def test_lambada_is_split_as_the_harness_does(tmp_path: Path, gpt2: Gpt2Tokenizer, context: int):
    path = tmp_path / "lambada.jsonl"
    path.write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in [*PASSAGES, "two  spaces", "tab and\tword"])
    )
    check_lambada_split(path, gpt2, context)


def test_the_published_lambada_is_split_as_the_harness_does(published: Path, gpt2: Gpt2Tokenizer):
    check_lambada_split(published / "lambada" / "lambada_test.jsonl", gpt2, 1024)

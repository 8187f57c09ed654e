"""Every library that may encode gives the ids of the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlm.corpus.preparing import engines
from mlm.corpus.preparing.engines import build, choose, engine_names, probe, unsafe_characters
from mlm.data.tokenizers import ByteTokenizer, Gpt2Tokenizer
from mlm.errors import DataError

GPT2 = Gpt2Tokenizer()
ENCODE = {name: build(name, lambda: GPT2) for name in engine_names(GPT2)}


def test_all_three_libraries_are_compared_here() -> None:
    assert tuple(ENCODE) == ("gigatoken", "tiktoken", "tokenizers")
    assert choose(GPT2) == "gigatoken"


def assert_equal_ids(text: str) -> None:
    expected = ENCODE["tokenizers"](text).tolist()
    for name, encode in ENCODE.items():
        assert encode(text).tolist() == expected, (name, text[:200])


@settings(deadline=None, max_examples=500, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text()
    | st.text(alphabet=st.characters(min_codepoint=0x80, exclude_categories=["Cs"]))
    | st.text(alphabet="a '\n\u3000\u20281sdé")
)
def test_ids_of_random_unicode_are_equal(text: str) -> None:
    assert_equal_ids(text)


@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|> is a text like any other<|endoftext|>",
        "\U000325ef's",  # a letter only since Unicode 17: gigatoken takes it for one, the others do not
        "日本語\U00032e9a漢字",
        "\u088f1 \ua7ce's",
        " " * 300_000 + "x",  # tiktoken's pattern gives up
        "\n" * 300_000,
        "a" * 200_000,
        "",
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_ids_of_hard_texts_are_equal(text: str) -> None:
    assert_equal_ids(text)


def test_every_character_of_unicode_is_encoded_alike() -> None:
    exact, fast = ENCODE["tiktoken"], ENCODE["gigatoken"]
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = [
        "".join(f"a{chr(c)}1 {chr(c)}{chr(c)}'s\n" for c in codes[i : i + 256])
        for i in range(0, len(codes), 256)
    ]
    wrong = [i for i, text in enumerate(texts) if not np.array_equal(exact(text), fast(text))]
    assert not wrong
    # The fast one serves what is written every day, and it is compared on all that it serves.
    unsafe = unsafe_characters()
    assert not unsafe.search("naïve — “quotes” 日本語 한국어 العربية हिन्दी 🎉👩‍👩‍👧‍👦 \u3000\x85\ufeff")
    assert len(probe()) > 50_000 * 8


def test_a_library_that_does_not_agree_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLM_CACHE", str(tmp_path))
    honest = engines.gigatoken_encode()
    monkeypatch.setattr(engines, "gigatoken_encode", lambda: lambda text: honest(text.replace("é", "e")))
    assert choose(GPT2) == "tiktoken"
    with pytest.raises(
        DataError, match="--engine=gigatoken does not give the ids of the other libraries here"
    ):
        choose(GPT2, "gigatoken")


def test_libraries_that_are_not_installed_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    assert choose(GPT2) == "tiktoken"
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert choose(GPT2) == "tokenizers"
    with pytest.raises(DataError, match="--engine=tiktoken is not installed"):
        choose(GPT2, "tiktoken")


def test_other_tokenizers_encode_with_their_own_library() -> None:
    assert choose(ByteTokenizer()) == "byte"
    with pytest.raises(DataError, match="--engine=tiktoken does not encode for byte"):
        choose(ByteTokenizer(), "tiktoken")


def test_ids_of_all_real_texts_are_equal(test_data: Path) -> None:
    paths = [
        path for path in sorted(test_data.rglob("*")) if path.suffix in (".jsonl", ".txt", ".tokens", ".raw")
    ]
    texts = []
    for path in paths:
        raw = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl" and path.parent.name == "classics":
            texts += [json.loads(line)["text"] for line in raw.split("\n") if line]
        else:
            texts.append(raw)
    assert sum(map(len, texts)) > 30_000_000
    exact, fast = ENCODE["tiktoken"], ENCODE["gigatoken"]
    for text in texts:
        assert np.array_equal(exact(text), fast(text)), text[:80]
    for text in texts[:: max(1, len(texts) // 60)]:
        assert np.array_equal(exact(text), ENCODE["tokenizers"](text)), text[:80]

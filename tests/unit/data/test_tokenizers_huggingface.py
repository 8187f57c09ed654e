"""tokenizer.json against the library it belongs to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Pipeline

from mlm.data.tokenizers import HuggingFaceTokenizer, cut_at_line_ends, huggingface
from mlm.errors import DataError
from tests.unit.data.tokenizer_texts import AWKWARD, CONTROLS, JAPANESE

PLAIN = [text for text in [*AWKWARD, JAPANESE] if not any(name in text for name in CONTROLS)]


@pytest.fixture(scope="module", params=["hf_bytes", "hf_unigram"])
def path(request: pytest.FixtureRequest, tokenizer_files: dict[str, Path]) -> Path:
    return tokenizer_files[request.param]


@pytest.fixture(scope="module")
def theirs(path: Path) -> Pipeline:
    pipeline = Pipeline.from_file(str(path))
    pipeline.no_truncation()
    pipeline.no_padding()
    return pipeline


@pytest.fixture(scope="module")
def ours(path: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(path)


@pytest.mark.parametrize("text", PLAIN)
def test_ids_are_the_librarys_on_text_without_control_tokens(
    ours: HuggingFaceTokenizer, theirs: Pipeline, text: str
):
    assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False).ids


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="<[＜［"), max_size=40))
def test_ids_are_the_librarys_on_any_such_text(ours: HuggingFaceTokenizer, theirs: Pipeline, text: str):
    assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False).ids


def test_nothing_is_cut_off_filled_up_or_added(tokenizer_files: dict[str, Path], shakespeare: str):
    path = tokenizer_files["hf_bytes"]
    content = json.loads(path.read_text())
    assert content["truncation"]["max_length"] == 8
    assert len(Pipeline.from_file(str(path)).encode("a").ids) == 8, "the file asks for padding"
    tokenizer = HuggingFaceTokenizer(path)
    assert tokenizer.encode("a").tolist() == [content["model"]["vocab"]["a"]]
    assert tokenizer.decode(tokenizer.encode(shakespeare[:5000])) == shakespeare[:5000]


def test_an_added_token_that_is_no_control_token_keeps_its_id(tokenizer_files: dict[str, Path]):
    tokenizer = HuggingFaceTokenizer(tokenizer_files["hf_bytes"])
    spaces = Pipeline.from_file(str(tokenizer_files["hf_bytes"])).token_to_id("        ")
    assert spaces in tokenizer.encode("a        b")
    assert tokenizer.special == {"eod": 601, "bos": 600, "mask": 602}


def test_the_size_counts_added_tokens_and_gaps(edited: Callable[..., Path]):
    def gap(content: dict[str, Any]) -> None:
        content["added_tokens"][-1]["id"] = 999

    def gap_in_the_model(content: dict[str, Any]) -> None:
        content["model"]["vocab"]["the"] = 5000
        content["model"]["merges"] = []

    assert HuggingFaceTokenizer(edited(gap)).vocab_size == 1000
    assert HuggingFaceTokenizer(edited(gap_in_the_model)).vocab_size == 5001


@pytest.fixture
def edited(tokenizer_files: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """Writes the byte-level file with a change."""

    def edit(change: Callable[[dict[str, Any]], None]) -> Path:
        content = json.loads(tokenizer_files["hf_bytes"].read_text())
        change(content)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        return tmp_path / "tokenizer.json"

    return edit


def normalised(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "NFC"}


def with_a_space_in_front(content: dict[str, Any]) -> None:
    content["pre_tokenizer"]["pretokenizers"][-1]["add_prefix_space"] = True


def without_a_byte(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    vocab["unused"] = vocab.pop("Ġ")
    merges = [pair for pair in content["model"]["merges"] if "Ġ" not in "".join(pair)]
    content["model"]["merges"] = merges


def with_words_removed(content: dict[str, Any]) -> None:
    content["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"


def with_a_token_that_takes_spaces(content: dict[str, Any]) -> None:
    content["added_tokens"][-2]["lstrip"] = True


def with_a_token_that_decodes_to_another(content: dict[str, Any]) -> None:
    content["added_tokens"][-2]["content"] = "é"


LOSING = [
    (normalised, "e\u0301"),
    (with_a_space_in_front, "a"),
    (without_a_byte, "a b"),
    (with_words_removed, "a b"),
    (with_a_token_that_takes_spaces, "a\n        b"),
    (with_a_token_that_decodes_to_another, "é"),
]


@pytest.mark.parametrize(("change", "text"), LOSING)
def test_a_step_that_loses_text_is_seen(
    change: Callable[[dict[str, Any]], None], text: str, edited: Callable[..., Path]
):
    tokenizer = HuggingFaceTokenizer(edited(change))
    assert tokenizer.decode(tokenizer.encode(text)) != text, "the premise"
    assert not tokenizer.lossless
    assert "not known to keep every text" in tokenizer.loss


def test_a_text_is_cut_only_where_gpt2s_pattern_lets_it(
    tokenizer_files: dict[str, Path],
    edited: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    shakespeare: str,
):
    monkeypatch.setattr(huggingface, "PIECE_CHARACTERS", 5)
    seen: list[int] = []

    def counted(text: str, characters: int) -> Any:
        seen.append(characters)
        return cut_at_line_ends(text, characters)

    monkeypatch.setattr(huggingface, "cut_at_line_ends", counted)

    def as_gpt2(content: dict[str, Any]) -> None:
        content["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        content["pre_tokenizer"]["use_regex"] = True

    for path, cuts in ((tokenizer_files["hf_bytes"], 0), (edited(as_gpt2), 1)):
        seen.clear()
        tokenizer, theirs = HuggingFaceTokenizer(path), Pipeline.from_file(str(path))
        theirs.no_truncation()
        theirs.no_padding()
        text = shakespeare[:3000] + "end!\n\n?\nx"
        assert tokenizer.encode(text).tolist() == theirs.encode(text, add_special_tokens=False).ids
        assert len(seen) == cuts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is no JSON"),
        (b"[]", "holds no model"),
        (b'{"model": {"type": "Unheard"}}', "is not accepted"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(content: bytes | None, message: str, tmp_path: Path):
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(DataError, match=message):
        HuggingFaceTokenizer(tmp_path / "tokenizer.json")

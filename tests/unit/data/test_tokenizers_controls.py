"""What a document says stays what it says: no text of a user's becomes a control token, of any tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm.data.tokenizers import HuggingFaceTokenizer, Tokenizer
from mlm.data.tokenizers.names import is_control
from mlm.errors import DataError
from tests.unit.data.test_tokenizers import KINDS, LOSSLESS, make
from tests.unit.data.tokenizer_texts import CONTROLS

ALL = [*KINDS, "wordpiece_cased"]
# U+2581 joined to a name, capital and wide letters: what normalisers turn into the names themselves.
DISGUISED = ["＜/s＞", "[mask]", "▁</s>", "< /s>", "［ＭＡＳＫ］", "<|endoftext|", "[[MASK]]", "<</s>>"]


def loaded(name: str, files: dict[str, Path]) -> Tokenizer:
    return make("wordpiece", {"wordpiece": files[name]}) if name == "wordpiece_cased" else make(name, files)


def control_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids whose piece reads like a control token, and all special ones but the unknown one."""
    named = {
        token for token in range(tokenizer.vocab_size) if is_control(tokenizer.piece(token).removeprefix("▁"))
    }
    return (named | set(tokenizer.special.values())) - {tokenizer.special.get("unk")}


@pytest.mark.parametrize("name", ALL)
def test_names_of_control_tokens_are_encoded_as_the_characters_they_are(
    name: str, tokenizer_files: dict[str, Path]
):
    tokenizer = loaded(name, tokenizer_files)
    controls = control_ids(tokenizer)
    assert len(controls) >= (1 if tokenizer.kind in ("gpt2", "byte") else 3)
    for control in [*CONTROLS, *DISGUISED]:
        for text in (
            control,
            f"the {control} and",
            f"the{control}and",
            f"\n{control}{control} ",
            f"{control}\n",
        ):
            ids = tokenizer.encode(text)
            assert not controls & set(ids.tolist()), (text, [tokenizer.piece(token) for token in ids])
            if name in LOSSLESS:
                assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_text_made_of_names_and_parts_of_names_gives_one(
    name: str, data: st.DataObject, controlled: dict[str, tuple[Tokenizer, set[int]]]
):
    tokenizer, controls = controlled[name]
    parts = [*CONTROLS, *DISGUISED, "<", ">", "[", "]", "|", "/s", "MASK", " ", "a", "\n", "▁"]
    text = data.draw(st.lists(st.sampled_from(parts), max_size=8).map("".join))
    assert not controls & set(tokenizer.encode(text).tolist())


@pytest.fixture(scope="module")
def controlled(tokenizer_files: dict[str, Path]) -> dict[str, tuple[Tokenizer, set[int]]]:
    every = {name: loaded(name, tokenizer_files) for name in ALL}
    return {name: (tokenizer, control_ids(tokenizer)) for name, tokenizer in every.items()}


def test_a_byte_written_out_is_not_that_byte(controlled: dict[str, tuple[Tokenizer, set[int]]]):
    for name in ("sentencepiece", "sentencepiece_bpe", "hf_unigram"):
        tokenizer, _ = controlled[name]
        for text in ("<0x41>", "a<0xE3>b", "<0x0a>"):
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_name_of_the_unknown_token_is_not_unknown(controlled: dict[str, tuple[Tokenizer, set[int]]]):
    for name in ("sentencepiece", "sentencepiece_bpe", "hf_unigram", "wordpiece_cased"):
        tokenizer, _ = controlled[name]
        for text in ("<unk>", "a <unk> b"):
            assert tokenizer.special["unk"] not in tokenizer.encode(text)


def test_a_special_token_that_is_an_ordinary_word_is_refused_where_the_text_has_it(tmp_path: Path):
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": 1, "content": "x", "special": True, "single_word": False, "lstrip": False}
            | {"rstrip": False, "normalized": False}
        ],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {"a": 0, "x": 1}, "unk_token": "a"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = HuggingFaceTokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("a a").tolist() == [0, 0]
    with pytest.raises(DataError, match="makes the control token x of text"):
        tokenizer.encode("a x")

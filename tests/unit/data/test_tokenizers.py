from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from mlm.data import tokenizers
from mlm.data.sentencepiece_training import train
from mlm.data.tokenizers import (
    GPT2_FOLDER,
    ByteTokenizer,
    CharTokenizer,
    Gpt2Tokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    cut_at_line_ends,
    keep_tokenizer,
    load_tokenizer,
)
from mlm.errors import DataError

AWKWARD = [
    "",
    " ",
    "\n",
    "a  b\n\n\tc ",
    "   three before and after   \n   ",
    "trailing newline\n",
    "\r\n windows \r\n\r\n",
    "naïve café e\u0301 — “quotes” …",
    "日本語のテキスト、改行\nとスペース　全角",
    "🎉👩‍👩‍👧‍👦 emoji, \u200b zero width, \ufeff mark, nul \x00",
    "we've they'll I'M '' 's",
    "1234567890 3.14 x=2**10;",
    "<|endoftext|> <s></s> <unk> <0x0A> ▁x ▁▁",
    "\u2028 \x85 \xa0 \x1c spaces",
]


@pytest.fixture(scope="module")
def gpt2() -> Gpt2Tokenizer:
    return Gpt2Tokenizer()


@pytest.fixture(scope="module")
def oracle() -> tiktoken.Encoding:
    """tiktoken's implementation of GPT-2's encoding over the same two files; the pattern is GPT-2's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        ranks = data_gym_to_mergeable_bpe_ranks(
            str(GPT2_FOLDER / "merges.txt"), str(GPT2_FOLDER / "vocab.json")
        )
    return tiktoken.Encoding(
        "gpt2",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 50256},
    )


@pytest.fixture(scope="module", params=["gpt2", "sentencepiece", "byte"])
def exact(request: pytest.FixtureRequest, trained_model: Path) -> Tokenizer:
    if request.param == "sentencepiece":
        return SentencePieceTokenizer(trained_model)
    return Gpt2Tokenizer() if request.param == "gpt2" else ByteTokenizer()


@pytest.mark.parametrize("text", AWKWARD)
def test_gpt2_ids_equal_tiktokens_on_awkward_text(gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, text: str):
    assert gpt2.encode(text).tolist() == oracle.encode_ordinary(text)


def test_gpt2_ids_equal_tiktokens_on_the_embedded_text(
    gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, shakespeare: str
):
    part = shakespeare[:400_000]  # longer than one piece, so that cuts are among it
    assert gpt2.encode(part).tolist() == oracle.encode_ordinary(part)


def test_gpt2_ids_equal_tiktokens_wherever_the_text_is_cut(
    gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, monkeypatch: pytest.MonkeyPatch
):
    text = "\n".join(AWKWARD) * 3
    monkeypatch.setattr(tokenizers, "PIECE_CHARACTERS", 3)
    assert len(list(cut_at_line_ends(text, 3))) > 20
    assert gpt2.encode(text).tolist() == oracle.encode_ordinary(text)


@pytest.mark.parametrize("file", ["classics/classics_small.jsonl", "wikitext103/wiki.valid.tokens"])
def test_gpt2_ids_equal_tiktokens_on_real_text(
    gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, test_data: Path, file: str
):
    text = (test_data / file).read_bytes().decode()[:500_000]
    assert gpt2.encode(text).tolist() == oracle.encode_ordinary(text)


def test_gpt2_writes_every_token_as_tiktoken_does(gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding):
    for token in range(0, 50_256, 7):
        assert gpt2.decode([token]) == oracle.decode([token])


def test_the_text_endoftext_never_becomes_the_special_id(gpt2: Gpt2Tokenizer):
    assert gpt2.eod == 50_256
    ids = gpt2.encode("one<|endoftext|>two")
    assert gpt2.eod not in ids
    assert gpt2.decode(ids) == "one<|endoftext|>two"
    assert gpt2.decode([*ids, gpt2.eod]) == "one<|endoftext|>two"


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_comes_back_exactly(exact: Tokenizer, text: str):
    ids = exact.encode(text)
    assert exact.decode(ids) == text
    assert exact.eod not in ids


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_exactly(exact: Tokenizer, text: str):
    ids = exact.encode(text)
    assert exact.decode(ids) == text
    assert not len(ids) or (ids.min() >= 0 and ids.max() < exact.vocab_size)


def test_sentencepiece_pieces_joined_at_cuts_equal_the_library_on_the_whole(
    trained_model: Path, shakespeare: str, monkeypatch: pytest.MonkeyPatch
):
    library = sentencepiece.SentencePieceProcessor(model_file=str(trained_model))
    monkeypatch.setattr(tokenizers, "PIECE_CHARACTERS", 1000)
    part = shakespeare[-200_000:]
    assert SentencePieceTokenizer(trained_model).encode(part).tolist() == library.encode(part)


def test_a_foreign_sentencepiece_model_gives_the_librarys_ids(test_data: Path):
    path = test_data / "sentencepiece" / "test_model.model"
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    text = (test_data / "sentencepiece" / "botchan.txt").read_bytes().decode()[:300_000]
    tokenizer = SentencePieceTokenizer(path)
    assert tokenizer.encode(text).tolist() == library.encode(text)
    assert (tokenizer.vocab_size, tokenizer.eod) == (1000, 2)


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path):
    (tmp_path / "no.model").write_text("not a model")
    with pytest.raises(DataError, match=r"no\.model is no SentencePiece model"):
        SentencePieceTokenizer(tmp_path / "no.model")
    with pytest.raises(DataError, match="cannot be read"):
        SentencePieceTokenizer(tmp_path / "absent.model")


def test_characters_are_numbered_in_sorted_order(shakespeare: str):
    tokenizer = CharTokenizer.of_text(shakespeare)
    place = {character: i for i, character in enumerate(sorted(set(shakespeare)))}
    assert tokenizer.vocab_size == len(place) == 65
    assert tokenizer.encode(shakespeare[:5000]).tolist() == [place[c] for c in shakespeare[:5000]]
    assert tokenizer.decode(tokenizer.encode(shakespeare)) == shakespeare
    assert tokenizer.eod is None


def test_an_alphabet_in_any_order_keeps_its_numbers():
    tokenizer = CharTokenizer("zöa\n🎉")
    assert tokenizer.encode("a🎉z\nö").tolist() == [2, 4, 0, 3, 1]
    assert tokenizer.encode("").tolist() == []


@pytest.mark.parametrize("foreign", ["\x00", "Z", "é", "🎉"])
def test_a_character_outside_the_alphabet_is_named_with_its_offset(foreign: str):
    with pytest.raises(DataError) as error:
        CharTokenizer.of_text("abc").encode("abcab" + foreign + "ab")
    assert repr(foreign) in str(error.value)
    assert "offset 5 " in str(error.value)


def test_bytes_are_utf8_and_broken_ones_are_replaced():
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("aé").tolist() == list("aé".encode())
    assert (tokenizer.vocab_size, tokenizer.eod) == (257, 256)
    assert tokenizer.decode([97, 0xC3, 256, 98]) == "a\ufffdb"


def test_ids_outside_the_vocabulary_decode_to_the_replacement_character(exact: Tokenizer):
    ids = exact.encode("word").tolist()
    beyond = exact.vocab_size
    assert exact.decode([-1, *ids, beyond, beyond + 7, *ids]) == "\ufffdword\ufffd\ufffdword"
    assert CharTokenizer("ab").decode(np.array([0, 2, 1])) == "a\ufffdb"


def test_a_description_through_json_rebuilds_the_tokenizer(exact: Tokenizer, tmp_path: Path):
    kept = keep_tokenizer(exact.describe(), tmp_path)
    for description, folder in ((exact.describe(), None), (kept, tmp_path)):
        again = load_tokenizer(json.loads(json.dumps(description)), folder)
        assert again.describe().keys() == exact.describe().keys()
        assert again.fingerprint == exact.fingerprint
        assert again.encode("the same text").tolist() == exact.encode("the same text").tolist()


def test_a_kept_tokenizer_survives_its_source(trained_model: Path, tmp_path: Path):
    source, kept_in = tmp_path / "source.model", tmp_path / "kept"
    kept_in.mkdir()
    source.write_bytes(trained_model.read_bytes())
    kept = keep_tokenizer(SentencePieceTokenizer(source).describe(), kept_in)
    source.unlink()
    assert load_tokenizer(kept, kept_in).decode(load_tokenizer(kept, kept_in).encode("still")) == "still"


def test_an_alphabet_through_json_rebuilds_the_tokenizer():
    tokenizer = CharTokenizer('\n é🎉"\\')
    again = load_tokenizer(json.loads(json.dumps(tokenizer.describe())))
    assert again.encode('🎉"').tolist() == tokenizer.encode('🎉"').tolist() == [3, 4]


def test_a_tokenizer_file_that_changed_is_refused(trained_model: Path, tmp_path: Path, shakespeare: str):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained_model.read_bytes())
    description = SentencePieceTokenizer(path).describe()
    train(shakespeare[:60_000], 500, path)
    with pytest.raises(DataError, match="has changed"):
        load_tokenizer(description)


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match="known are gpt2, sentencepiece, char, byte"):
        load_tokenizer({"kind": "wordpiece"})


def test_importing_the_data_package_loads_no_tokenizer_library_and_no_torch():
    code = (
        "import sys, mlm.data.prepare, mlm.data.samples;"
        "print(sorted({'torch', 'tokenizers', 'sentencepiece', 'hydra', 'omegaconf'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"

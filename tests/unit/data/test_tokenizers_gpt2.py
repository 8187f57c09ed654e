"""GPT-2's BPE against tiktoken and Hugging Face's tokenizers, each built from the same two files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import ByteLevelBPETokenizer

from mlm.data.tokenizers import GPT2_FOLDER, Gpt2Tokenizer, byte_bpe, cut_at_line_ends
from mlm.errors import DataError
from tests.unit.data.tokenizer_texts import AWKWARD, JAPANESE


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


@pytest.mark.parametrize("text", [*AWKWARD, JAPANESE])
def test_ids_equal_tiktokens_on_awkward_text(gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, text: str):
    assert gpt2.encode(text).tolist() == oracle.encode_ordinary(text)


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_equal_tiktokens_on_any_text(gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, text: str):
    assert gpt2.encode(text).tolist() == oracle.encode_ordinary(text)


def test_ids_equal_tiktokens_on_the_embedded_text(
    gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, shakespeare: str
):
    part = shakespeare[:400_000]  # longer than one piece, so that cuts are among it
    assert gpt2.encode(part).tolist() == oracle.encode_ordinary(part)


def test_ids_equal_tiktokens_wherever_the_text_is_cut(
    gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, monkeypatch: pytest.MonkeyPatch
):
    text = "\n".join(AWKWARD) * 3
    monkeypatch.setattr(byte_bpe, "PIECE_CHARACTERS", 3)
    assert len(list(cut_at_line_ends(text, 3))) > 20
    assert gpt2.encode(text).tolist() == oracle.encode_ordinary(text)


@pytest.mark.parametrize("file", ["wikitext103/wiki.test.tokens", "classics/classics_small.jsonl"])
def test_ids_equal_tiktokens_and_hugging_faces_on_real_text(
    gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding, test_data: Path, file: str
):
    raw = (test_data / file).read_bytes().decode()
    texts = [json.loads(line)["text"] for line in raw.split("\n") if line] if "jsonl" in file else [raw]
    other = ByteLevelBPETokenizer.from_file(str(GPT2_FOLDER / "vocab.json"), str(GPT2_FOLDER / "merges.txt"))
    for text in texts:
        ids = gpt2.encode(text).tolist()
        assert ids == oracle.encode_ordinary(text)
        assert ids == other.encode(text).ids
        assert gpt2.decode(ids) == text


def test_every_token_is_written_as_tiktoken_writes_it(gpt2: Gpt2Tokenizer, oracle: tiktoken.Encoding):
    for token in range(0, 50_256, 7):
        assert gpt2.decode([token]) == oracle.decode([token])


def test_pieces_show_the_bytes_of_what_is_no_character(gpt2: Gpt2Tokenizer):
    shown = [gpt2.piece(token) for token in gpt2.encode("a 本é")]
    assert shown == ["a", " <0xE6><0x9C>", "<0xAC>", "é"]
    assert gpt2.piece(50_256) == "<|endoftext|>"


def test_a_copy_of_the_shipped_pair_is_the_same_tokenizer(gpt2: Gpt2Tokenizer, tmp_path: Path):
    for file in ("vocab.json", "merges.txt"):
        (tmp_path / file).write_bytes((GPT2_FOLDER / file).read_bytes())
    copy = Gpt2Tokenizer(tmp_path)
    assert copy.fingerprint == gpt2.fingerprint
    assert (copy.vocab_size, copy.eod, copy.special) == (gpt2.vocab_size, gpt2.eod, gpt2.special)


def test_another_pair_is_encoded_as_hugging_face_does_and_its_greatest_id_counts(
    tokenizer_files: dict[str, Path], shakespeare: str
):
    folder = tokenizer_files["gpt2_pair"]
    pair = Gpt2Tokenizer(folder)
    other = ByteLevelBPETokenizer.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    for text in [*AWKWARD, shakespeare[-20_000:]]:
        assert pair.encode(text).tolist() == other.encode(text).ids
    assert pair.vocab_size == 704
    assert pair.special == {"eod": 702, "bos": 700, "unk": 703}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.json", '{"a": 0}', r"without tokens for 255 bytes, 0x00 the first"),
        ("vocab.json", "[1]", "no mapping from tokens to ids"),
        ("vocab.json", "{", r"vocab\.json that is not read"),
        ("merges.txt", "#version: 0.2\nq zzz\n", r"merges\.txt that does not fit vocab\.json"),
        ("merges.txt", None, r"holds no merges\.txt"),
    ],
)
def test_a_pair_that_would_lose_text_or_is_none_is_refused(
    file: str, content: str | None, message: str, tokenizer_files: dict[str, Path], tmp_path: Path
):
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((tokenizer_files["gpt2_pair"] / name).read_bytes())
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=message):
        Gpt2Tokenizer(tmp_path)

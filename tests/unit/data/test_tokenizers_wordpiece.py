"""WordPiece against Hugging Face's own assembly of BERT's tokenizer, and transformers' if installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from mlm.data.tokenizers import (
    WordPieceTokenizer,
    cut_at_line_ends,
    load_tokenizer,
    parse_tokenizer,
    wordpiece,
)
from mlm.errors import DataError
from tests.unit.data.tokenizer_texts import AWKWARD, CONTROLS, JAPANESE

FILES = {"wordpiece": True, "wordpiece_cased": False}


@pytest.fixture(scope="module")
def pairs(tokenizer_files: dict[str, Path]) -> list[tuple[WordPieceTokenizer, BertWordPieceTokenizer]]:
    """Ours and theirs, uncased and cased; theirs is told which it is."""
    return [
        (
            WordPieceTokenizer(tokenizer_files[name]),
            BertWordPieceTokenizer(str(tokenizer_files[name]), lowercase=lowercase),
        )
        for name, lowercase in FILES.items()
    ]


def ids_of(theirs: BertWordPieceTokenizer, text: str) -> list[int]:
    theirs._tokenizer.encode_special_tokens = True
    return theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", [*AWKWARD, JAPANESE, " ".join(CONTROLS)])
def test_ids_are_hugging_faces_on_awkward_text(pairs: list[Any], text: str):
    for ours, theirs in pairs:
        assert ours.encode(text).tolist() == ids_of(theirs, text)


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_ids_are_hugging_faces_on_any_text(pairs: list[Any], text: str):
    for ours, theirs in pairs:
        assert ours.encode(text).tolist() == ids_of(theirs, text)


def test_ids_are_hugging_faces_on_the_embedded_text_wherever_it_is_cut(
    pairs: list[Any], shakespeare: str, monkeypatch: pytest.MonkeyPatch
):
    text = shakespeare[:100_000] + "\n".join(AWKWARD)
    monkeypatch.setattr(wordpiece, "PIECE_CHARACTERS", 50)
    assert len(list(cut_at_line_ends(text, 50))) > 500
    for ours, theirs in pairs:
        assert ours.encode(text).tolist() == ids_of(theirs, text)


@pytest.mark.parametrize(("name", "lowercase"), FILES.items())
def test_ids_are_transformers_on_text(
    name: str, lowercase: bool, tokenizer_files: dict[str, Path], tmp_path: Path, shakespeare: str
):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra harness)")
    (tmp_path / "vocab.txt").write_bytes(tokenizer_files[name].read_bytes())
    theirs = transformers.BertTokenizer.from_pretrained(str(tmp_path), do_lower_case=lowercase)
    ours = WordPieceTokenizer(tokenizer_files[name])
    for text in [*AWKWARD, JAPANESE, shakespeare[:20_000]]:
        expected = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert ours.encode(text).tolist() == expected
    assert (ours.special["cls"], ours.special["sep"]) == (theirs.cls_token_id, theirs.sep_token_id)
    assert (ours.special["mask"], ours.special["pad"]) == (theirs.mask_token_id, theirs.pad_token_id)


def test_case_is_seen_from_the_vocabulary(pairs: list[Any]):
    (uncased, _), (cased, _) = pairs
    assert (uncased.lowercase, cased.lowercase) == (True, False)
    assert uncased.encode("The KING").tolist() == uncased.encode("the king").tolist()
    assert cased.encode("The King").tolist() != cased.encode("the king").tolist()
    assert "lose their accents" in uncased.loss
    assert "accents" not in cased.loss
    assert (uncased.name.split(",")[0], cased.name.split(",")[0]) == (
        "wordpiece (uncased)",
        "wordpiece (cased)",
    )


def test_special_ids_are_the_lines_of_their_names(pairs: list[Any]):
    tokenizer = pairs[0][0]
    assert tokenizer.special == {"pad": 0, "unk": 2, "cls": 3, "sep": 4, "mask": 5, "eod": 4}
    assert tokenizer.decode([*tokenizer.encode("the king"), tokenizer.eod]) == "the king"


def test_a_token_that_looks_like_a_line_end_is_one_token(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n\u2028\n\x85\na\n", encoding="utf-8")
    tokenizer = WordPieceTokenizer(tmp_path / "vocab.txt")
    assert tokenizer.vocab_size == 4
    assert tokenizer.encode("a").tolist() == [3]


def test_a_file_with_windows_line_ends_has_the_same_tokens(tokenizer_files: dict[str, Path], tmp_path: Path):
    raw = tokenizer_files["wordpiece"].read_bytes()
    (tmp_path / "vocab.txt").write_bytes(raw.replace(b"\n", b"\r\n"))
    assert WordPieceTokenizer(tmp_path / "vocab.txt").encode("the king").tolist() == (
        WordPieceTokenizer(tokenizer_files["wordpiece"]).encode("the king").tolist()
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\n", r"has no line \[UNK\]"),
        (b"[UNK]\n\xff\n", "is not UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(content: bytes | None, message: str, tmp_path: Path):
    if content is not None:
        (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        WordPieceTokenizer(tmp_path / "vocab.txt")


def test_the_shipped_vocabulary_is_that_of_berts_uncased_models():
    tokenizer = WordPieceTokenizer()
    assert tokenizer.vocab_size == wordpiece.BERT_VOCAB_SIZE == 30_522
    assert tokenizer.encode("Hello, world!").tolist() == [7592, 1010, 2088, 999]
    assert tokenizer.special == {"eod": 102, "cls": 101, "sep": 102, "mask": 103, "pad": 0, "unk": 100}
    again = load_tokenizer(tokenizer.describe())
    assert "path" not in tokenizer.describe()
    assert again.fingerprint == WordPieceTokenizer(wordpiece.BERT_VOCAB.resolve()).fingerprint
    assert parse_tokenizer("wordpiece").fingerprint == again.fingerprint

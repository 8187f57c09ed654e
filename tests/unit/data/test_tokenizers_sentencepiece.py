"""SentencePiece models against the library, and the reader of their file against its protobuf."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece

from mlm.data.tokenizers import SentencePieceTokenizer, sentencepiece_model
from mlm.data.tokenizers.sentencepiece_file import read_model
from mlm.errors import DataError
from tests.unit.data.tokenizer_files import sentencepiece_model as trained
from tests.unit.data.tokenizer_texts import AWKWARD, JAPANESE


def test_pieces_joined_at_cuts_equal_the_library_on_the_whole(
    trained_model: Path, shakespeare: str, monkeypatch: pytest.MonkeyPatch
):
    library = sentencepiece.SentencePieceProcessor(model_file=str(trained_model))
    monkeypatch.setattr(sentencepiece_model, "PIECE_CHARACTERS", 1000)
    part = shakespeare[-200_000:]
    assert SentencePieceTokenizer(trained_model).encode(part).tolist() == library.encode(part)


@pytest.mark.parametrize("text", [*AWKWARD, JAPANESE])
@pytest.mark.parametrize("name", ["sentencepiece", "sentencepiece_bpe"])
def test_ids_are_the_librarys_where_it_can_keep_the_text(
    name: str, text: str, tokenizer_files: dict[str, Path]
):
    library = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer_files[name]))
    if "▁" in text:
        text = text.replace("▁", "")  # a space to the library, and a character to us
    assert SentencePieceTokenizer(tokenizer_files[name]).encode(text).tolist() == library.encode(text)


def test_a_foreign_model_gives_the_librarys_ids(test_data: Path):
    path = test_data / "sentencepiece" / "test_model.model"
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    text = (test_data / "sentencepiece" / "botchan.txt").read_bytes().decode()[:300_000]
    tokenizer = SentencePieceTokenizer(path)
    assert tokenizer.encode(text).tolist() == library.encode(text)
    assert (tokenizer.vocab_size, tokenizer.eod) == (1000, 2)
    assert tokenizer.special == {"unk": 0, "bos": 1, "eod": 2}
    assert not tokenizer.lossless
    assert "normalises characters" in tokenizer.loss
    assert "drops spaces" in tokenizer.loss


LOSING = [
    ({"normalization_rule_name": "nfkc"}, "ﬁ", "normalises characters"),
    ({"remove_extra_whitespaces": True}, "a  b", "drops spaces"),
    ({"byte_fallback": False}, "中a", "become <unk>"),
    ({"add_dummy_prefix": True}, "a▁b", "U+2581 becomes a space"),
]


@pytest.mark.parametrize(("options", "text", "loss"), LOSING)
def test_an_option_that_loses_text_is_named(
    options: dict[str, object], text: str, loss: str, tmp_path: Path, shakespeare: str
):
    tokenizer = SentencePieceTokenizer(trained(tmp_path / "m", shakespeare[:30_000], "unigram", **options))
    assert tokenizer.decode(tokenizer.encode(text)) != text, "the premise"
    assert not tokenizer.lossless
    assert loss in tokenizer.loss


def test_a_dummy_prefix_alone_loses_nothing_else_and_a_text_is_not_cut(
    tmp_path: Path, shakespeare: str, monkeypatch: pytest.MonkeyPatch
):
    path = trained(tmp_path / "m", shakespeare[:30_000], "bpe", add_dummy_prefix=True)
    tokenizer = SentencePieceTokenizer(path)
    assert tokenizer.loss == "U+2581 becomes a space"
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    monkeypatch.setattr(sentencepiece_model, "PIECE_CHARACTERS", 10)
    assert tokenizer.encode(shakespeare[:2000]).tolist() == library.encode(shakespeare[:2000])
    for text in AWKWARD:
        if "▁" not in text:
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_without_a_piece_for_newlines_a_text_is_exact_all_the_same(tmp_path: Path, shakespeare: str):
    path = trained(tmp_path / "m", shakespeare[:30_000], "unigram", user_defined_symbols=[])
    tokenizer = SentencePieceTokenizer(path)
    assert tokenizer.lossless
    for text in AWKWARD:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_control_pieces_get_their_names_and_the_end_comes_first_from_the_model(
    tmp_path: Path, shakespeare: str, tokenizer_files: dict[str, Path]
):
    tokenizer = SentencePieceTokenizer(tokenizer_files["sentencepiece"])
    library = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer_files["sentencepiece"]))
    for purpose, name in {
        "eod": "</s>",
        "bos": "<s>",
        "unk": "<unk>",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "mask": "<mask>",
        "pad": "<pad>",
    }.items():
        assert tokenizer.special[purpose] == library.piece_to_id(name)
    path = trained(tmp_path / "m", shakespeare[:30_000], "bpe", eos_id=-1, control_symbols=["<eos>"])
    tokenizer = SentencePieceTokenizer(path)
    assert tokenizer.piece(tokenizer.eod or 0) == "<eos>"
    nameless = {"control_symbols": [], "user_defined_symbols": ["\n"]}
    path = trained(tmp_path / "m", shakespeare[:30_000], "bpe", eos_id=-1, **nameless)
    assert SentencePieceTokenizer(path).eod is None


@pytest.mark.parametrize("name", ["sentencepiece", "sentencepiece_bpe", "test_model"])
def test_the_file_reads_as_protobuf_reads_it(
    name: str, tokenizer_files: dict[str, Path], request: pytest.FixtureRequest
):
    protobuf = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    if name == "test_model":
        path = request.getfixturevalue("test_data") / "sentencepiece" / "test_model.model"
    else:
        path = tokenizer_files[name]
    raw = path.read_bytes()
    ours, theirs, changed = read_model(raw), protobuf.ModelProto(), protobuf.ModelProto()
    theirs.ParseFromString(raw)
    changed.ParseFromString(ours.model)
    spec = theirs.normalizer_spec
    assert ours.normalises == bool(spec.precompiled_charsmap)
    assert ours.adds_space == spec.add_dummy_prefix
    assert ours.drops_spaces == spec.remove_extra_whitespaces
    assert ours.marks_spaces == spec.escape_whitespaces
    assert ours.controls == {piece.piece for piece in changed.pieces if piece.type == piece.CONTROL}
    differ = {
        a.piece: (a.type, b.type)
        for a, b in zip(theirs.pieces, changed.pieces, strict=True)
        if a != b and (a.piece, a.score) == (b.piece, b.score)
    }
    user, control = theirs.SentencePiece.USER_DEFINED, theirs.SentencePiece.CONTROL
    marked = {"<mask>", "[SEP]", "<tool_call>"} if name != "test_model" else set()
    assert differ == {piece: (user, control) for piece in marked}
    for message in (theirs, changed):
        del message.pieces[:]
    assert theirs == changed


@pytest.mark.parametrize("length", [0, 1, 5, 100, 1000, -1])
def test_a_file_that_is_no_model_is_refused_by_name(
    length: int, tmp_path: Path, tokenizer_files: dict[str, Path]
):
    raw = tokenizer_files["sentencepiece"].read_bytes()
    (tmp_path / "cut.model").write_bytes(raw[:length])
    with pytest.raises(DataError, match=r"cut\.model is no SentencePiece model"):
        SentencePieceTokenizer(tmp_path / "cut.model")
    (tmp_path / "no.model").write_text("not a model")
    with pytest.raises(DataError, match=r"no\.model is no SentencePiece model"):
        SentencePieceTokenizer(tmp_path / "no.model")
    with pytest.raises(DataError, match="cannot be read"):
        SentencePieceTokenizer(tmp_path / "absent.model")

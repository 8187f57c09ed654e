"""What every tokenizer promises, whatever its kind."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.data.sentencepiece_training import train
from mlm.data.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    Gpt2Tokenizer,
    HuggingFaceTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    keep_tokenizer,
    load_tokenizer,
    parse_tokenizer,
)
from mlm.errors import DataError
from tests.unit.data.tokenizer_texts import AWKWARD

LOSSLESS = ["gpt2", "gpt2_pair", "sentencepiece", "sentencepiece_bpe", "byte", "hf_bytes"]
KINDS = [*LOSSLESS, "wordpiece", "hf_unigram"]


@pytest.fixture(scope="module")
def tokenizer(request: pytest.FixtureRequest, tokenizer_files: dict[str, Path]) -> Tokenizer:
    return make(request.param, tokenizer_files)


def make(name: str, files: dict[str, Path]) -> Tokenizer:
    match name:
        case "gpt2":
            return Gpt2Tokenizer()
        case "byte":
            return ByteTokenizer()
        case "gpt2_pair":
            return Gpt2Tokenizer(files[name])
        case "wordpiece":
            return WordPieceTokenizer(files[name])
        case "hf_bytes" | "hf_unigram":
            return HuggingFaceTokenizer(files[name])
    return SentencePieceTokenizer(files[name])


@pytest.mark.parametrize("tokenizer", LOSSLESS, indirect=True)
@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_comes_back_exactly(tokenizer: Tokenizer, text: str):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.eod not in ids


@pytest.mark.parametrize("tokenizer", LOSSLESS, indirect=True)
@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_exactly(tokenizer: Tokenizer, text: str):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not len(ids) or (ids.min() >= 0 and ids.max() < tokenizer.vocab_size)


@pytest.mark.parametrize("tokenizer", LOSSLESS, indirect=True)
def test_every_code_point_comes_back(tokenizer: Tokenizer):
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(codes), 8192):
        text = "".join(map(chr, codes[start : start + 8192]))
        assert tokenizer.decode(tokenizer.encode(text)) == text, f"from U+{codes[start]:04X} on"


@pytest.mark.parametrize("tokenizer", KINDS, indirect=True)
def test_who_promises_every_text_says_nothing_of_losses_and_the_others_do(
    tokenizer: Tokenizer, request: pytest.FixtureRequest
):
    lossless = request.node.callspec.params["tokenizer"] in LOSSLESS
    assert (tokenizer.lossless, bool(tokenizer.loss)) == (lossless, not lossless)


@pytest.mark.parametrize("tokenizer", KINDS, indirect=True)
def test_a_batch_is_the_texts_one_by_one(tokenizer: Tokenizer):
    batch = tokenizer.encode_batch(AWKWARD)
    assert [ids.tolist() for ids in batch] == [tokenizer.encode(text).tolist() for text in AWKWARD]
    assert all(ids.dtype == np.int32 for ids in batch)
    assert tokenizer.encode_batch([]) == []


@pytest.mark.parametrize("tokenizer", KINDS, indirect=True)
def test_eod_is_an_id_of_its_own_that_decodes_to_nothing(tokenizer: Tokenizer):
    assert tokenizer.eod is not None
    assert 0 <= tokenizer.eod < tokenizer.vocab_size
    ids = tokenizer.encode("a word").tolist()
    assert tokenizer.special["eod"] == tokenizer.eod
    assert tokenizer.decode([*ids, tokenizer.eod]) == tokenizer.decode(ids)


@pytest.mark.parametrize("tokenizer", KINDS, indirect=True)
def test_ids_outside_the_vocabulary_decode_to_the_replacement_character(tokenizer: Tokenizer):
    ids = tokenizer.encode("and").tolist()
    beyond, word = tokenizer.vocab_size, tokenizer.decode(ids)
    assert tokenizer.decode([-1, *ids, beyond, beyond + 7, *ids]) == f"\ufffd{word}\ufffd\ufffd{word}"


@pytest.mark.parametrize("tokenizer", KINDS, indirect=True)
def test_a_description_through_json_rebuilds_the_tokenizer(tokenizer: Tokenizer, tmp_path: Path):
    kept = keep_tokenizer(tokenizer.describe(), tmp_path)
    for description, folder in ((tokenizer.describe(), None), (kept, tmp_path)):
        again = load_tokenizer(json.loads(json.dumps(description)), folder)
        assert again.describe().keys() == tokenizer.describe().keys()
        assert again.fingerprint == tokenizer.fingerprint
        assert again.encode("the same text").tolist() == tokenizer.encode("the same text").tolist()


@pytest.mark.parametrize("tokenizer", KINDS, indirect=True)
def test_a_tokenizer_travels_to_another_process(tokenizer: Tokenizer):
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.describe() == tokenizer.describe()
    for text in AWKWARD:
        assert again.encode(text).tolist() == tokenizer.encode(text).tolist()


@pytest.mark.parametrize("name", ["gpt2_pair", "sentencepiece", "wordpiece", "hf_bytes"])
def test_a_kept_tokenizer_survives_its_source_and_a_changed_one_is_refused(
    name: str, tokenizer_files: dict[str, Path], tmp_path: Path
):
    original = make(name, tokenizer_files)
    elsewhere = tmp_path / "source"
    elsewhere.mkdir()
    moved = keep_tokenizer(original.describe(), elsewhere)
    source = elsewhere / moved["path"]
    kept_in = tmp_path / "run"
    kept_in.mkdir()
    kept = keep_tokenizer({**moved, "path": str(source)}, kept_in)
    changed = source / "vocab.json" if source.is_dir() else source
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(DataError, match=r"has changed|is no SentencePiece model"):
        load_tokenizer({**moved, "path": str(source)})
    changed.unlink()
    assert not Path(kept["path"]).is_absolute()
    again = load_tokenizer(kept, kept_in)
    assert again.encode("still here").tolist() == original.encode("still here").tolist()


def test_a_tokenizer_trained_again_has_changed(trained_model: Path, tmp_path: Path, shakespeare: str):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained_model.read_bytes())
    description = SentencePieceTokenizer(path).describe()
    train(shakespeare[:60_000], 500, path)
    with pytest.raises(DataError, match="has changed"):
        load_tokenizer(description)


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match="known are gpt2, sentencepiece, char, byte, wordpiece, hf"):
        load_tokenizer({"kind": "tiktoken"})


def test_ids_past_two_bytes_are_stored_as_they_are(tmp_path: Path):
    vocab = {f"w{number}": number for number in range(65_530)}
    file = tmp_path / "tokenizer.json"
    added = [{"id": 65_530 + i, "content": f"<extra_{i}>", "special": True} for i in range(10)]
    defaults = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    content = {
        "version": "1.0",
        "added_tokens": [{**defaults, **token} for token in added],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    }
    file.write_text(json.dumps(content))
    tokenizer = HuggingFaceTokenizer(file)
    assert tokenizer.vocab_size == 65_540
    ids = [*tokenizer.encode("w65529 w1"), 65_539]
    with IndexedWriter(tmp_path / "data", tokenizer.vocab_size) as writer:
        writer.add_document(ids)
    assert IndexedDataset(tmp_path / "data").tokens.tolist() == [65_529, 1, 65_539]
    beyond = pytest.raises(DataError, match="has token id 65,540, outside the vocabulary of 65,540")
    with beyond, IndexedWriter(tmp_path / "more", tokenizer.vocab_size) as writer:
        writer.add_document([65_540])


def test_a_command_line_names_a_tokenizer_by_kind_and_file(tokenizer_files: dict[str, Path]):
    files = tokenizer_files
    for spec, kind in [
        ("gpt2", "gpt2"),
        ("byte", "byte"),
        (f"gpt2:{files['gpt2_pair']}", "gpt2"),
        (f"sentencepiece:{files['sentencepiece']}", "sentencepiece"),
        (f"wordpiece:{files['wordpiece']}", "wordpiece"),
        (f"hf:{files['hf_bytes']}", "hf"),
        (str(files["sentencepiece"]), "sentencepiece"),
        (str(files["wordpiece"]), "wordpiece"),
        (str(files["hf_unigram"]), "hf"),
        (str(files["gpt2_pair"]), "gpt2"),
    ]:
        assert parse_tokenizer(spec).kind == kind


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gpt-2", "--tokenizer=gpt-2 is no tokenizer that is known: did you mean gpt2:DIR"),
        ("setencepiece:x.model", "did you mean sentencepiece:FILE.model"),
        (
            "zzz",
            "use gpt2, wordpiece, byte, sentencepiece:FILE.model, wordpiece:vocab.txt, hf:tokenizer.json "
            "or gpt2:DIR",
        ),
        ("char", "takes its alphabet from a text"),
        ("sentencepiece", "needs a SentencePiece .model file: type sentencepiece:FILE.model"),
        ("wordpiece:/no/vocab.txt", "/no/vocab.txt cannot be read .No such file or directory."),
        ("hf:/no/tokenizer.json", "/no/tokenizer.json cannot be read"),
        ("gpt2:/no", "/no holds no vocab.json and no merges.txt"),
    ],
)
def test_a_tokenizer_that_cannot_be_meant_is_refused_with_what_can(spec: str, message: str):
    with pytest.raises(DataError, match=message):
        parse_tokenizer(spec)


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
    assert CharTokenizer("ab").decode(np.array([0, 2, 1])) == "a\ufffdb"


def test_an_alphabet_through_json_rebuilds_the_tokenizer():
    tokenizer = CharTokenizer('\n é🎉"\\')
    again = load_tokenizer(json.loads(json.dumps(tokenizer.describe())))
    assert again.encode('🎉"').tolist() == tokenizer.encode('🎉"').tolist() == [3, 4]


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


def test_importing_the_data_package_loads_no_tokenizer_library_and_no_torch():
    code = (
        "import sys, mlm.data.prepare, mlm.data.samples, mlm.data.checks;"
        "print(sorted({'torch', 'tokenizers', 'sentencepiece', 'hydra', 'omegaconf'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"

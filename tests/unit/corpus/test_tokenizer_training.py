"""Tokenizers trained here: exact on every text, the same each time, refused with the limit that works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlm.corpus.tokenizing.sampling import Sample
from mlm.corpus.tokenizing.training import Recipe, problems, report, train_tokenizer
from mlm.data.text import EMBEDDED_PATH
from mlm.data.tokenizers import SentencePieceTokenizer, Tokenizer, parse_tokenizer
from mlm.errors import ConfigError, DataError
from tests.unit.data.tokenizer_texts import AWKWARD, CONTROLS, JAPANESE

KINDS = {
    "unigram": ("sentencepiece", {"model_type": "unigram"}),
    "bpe": ("sentencepiece", {"model_type": "bpe"}),
    "byte_bpe": ("bpe", {}),
}
RARE = "𠮷髙葛\U000e0100👨‍👩‍👧‍👦ﾊﾝ❄"


@pytest.fixture(scope="module")
def sample() -> Sample:
    """Japanese and English, with layout."""
    made = Sample(1_000_000)
    for text in (JAPANESE, EMBEDDED_PATH.read_text()[:40_000], JAPANESE):
        made.add(text)
    return made


def recipe(name: str, folder: Path, size: int = 800, **options: object) -> Recipe:
    kind, own = KINDS[name]
    return Recipe(kind, size, folder / ("out.model" if kind == "sentencepiece" else "out"), **own, **options)


@pytest.fixture(scope="module", params=KINDS)
def trained(
    request: pytest.FixtureRequest, sample: Sample, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    return train_tokenizer(sample, recipe(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize("text", [*AWKWARD, *CONTROLS, JAPANESE, RARE, JAPANESE.replace("\n", "\r\n")])
def test_every_text_comes_back_from_a_trained_tokenizer(trained: Tokenizer, text: str):
    assert trained.lossless
    assert trained.decode(trained.encode(text)) == text


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_from_a_trained_tokenizer(trained: Tokenizer, text: str):
    assert trained.decode(trained.encode(text)) == text


def test_a_trained_tokenizer_has_learned_from_the_text(trained: Tokenizer):
    assert trained.vocab_size == 800
    assert trained.eod is not None
    sentence = "朝の駅はいつも混んでいて、傘を持った人々が静かに電車を待っている。"
    # Bytes are the beginning; in characters, SentencePiece's, it is a third.
    assert len(trained.encode(sentence)) < 0.6 * len(sentence.encode())
    assert len(trained.encode(" the king")) <= 4


@pytest.mark.parametrize("name", KINDS)
def test_another_process_trains_the_same_bytes(name: str, tmp_path: Path):
    kind, own = KINDS[name]
    code = (
        "from pathlib import Path; from mlm.corpus.tokenizing.sampling import Sample;"
        "from mlm.corpus.tokenizing.training import *; from mlm.data.text import EMBEDDED_PATH;"
        "sample = Sample(1_000_000); sample.add(EMBEDDED_PATH.read_text()[:40_000]);"
        f"train_tokenizer(sample, Recipe({kind!r}, 700, Path('OUT'), **{own!r}))"
    )
    for out in ("first", "second"):
        subprocess.run([sys.executable, "-c", code.replace("OUT", str(tmp_path / out))], check=True)
    files = sorted(path.name for path in (tmp_path / "first").iterdir()) if kind == "bpe" else [""]
    for file in files:
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


@pytest.mark.parametrize("name", KINDS)
def test_a_vocabulary_too_large_is_refused_with_the_largest_that_works(
    name: str, tmp_path: Path, sample: Sample
):
    small = Sample(100_000)
    small.add(JAPANESE * 2)
    with pytest.raises(DataError, match="too large for this text, which gives at most") as error:
        train_tokenizer(small, recipe(name, tmp_path, 50_000))
    assert list(tmp_path.iterdir()) == []
    most = re.search(r"use --vocab-size=(\d+) or less", str(error.value))
    assert most
    largest = int(most[1])
    assert train_tokenizer(small, recipe(name, tmp_path, largest)).vocab_size == largest
    with pytest.raises(DataError, match="too large"):
        train_tokenizer(small, recipe(name, tmp_path, largest + 1, overwrite=True))


def test_a_vocabulary_too_small_is_refused_with_one_that_works(tmp_path: Path, sample: Sample):
    with pytest.raises(DataError, match="too small for this text") as error:
        train_tokenizer(sample, recipe("unigram", tmp_path, 200))
    enough = re.search(r"--vocab-size=(\d+) or more", str(error.value))
    assert enough
    assert train_tokenizer(sample, recipe("bpe", tmp_path, int(enough[1]))).vocab_size == int(enough[1])
    assert "is less than 256 bytes and 1 control tokens" in str(
        problems(recipe("byte_bpe", tmp_path, 256))[0]
    )
    smallest = train_tokenizer(sample, recipe("byte_bpe", tmp_path, 257))
    assert len(smallest.encode(JAPANESE)) == len(JAPANESE.encode())


@pytest.mark.parametrize("name", KINDS)
def test_control_tokens_get_ids_that_no_text_gives(name: str, tmp_path: Path, sample: Sample):
    names = ("[CLS]", "[SEP]", "[MASK]", "[PAD]")
    tokenizer = train_tokenizer(sample, recipe(name, tmp_path, control=names))
    assert {"cls", "sep", "mask", "pad", "eod"} <= tokenizer.special.keys()
    assert len({tokenizer.special[key] for key in ("cls", "sep", "mask", "pad", "eod")}) == 5
    text = "".join(names) + "</s><|endoftext|>"
    assert not set(tokenizer.special.values()) & set(tokenizer.encode(text).tolist())
    assert tokenizer.decode(tokenizer.encode(text)) == text
    if isinstance(tokenizer, SentencePieceTokenizer):
        # Control pieces to other programs that load the model, too.
        library = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.path))
        assert all(library.is_control(library.piece_to_id(control)) for control in names)


def test_byte_bpe_is_written_as_gpt2s_two_files(tmp_path: Path, sample: Sample):
    tokenizer = train_tokenizer(sample, recipe("byte_bpe", tmp_path))
    folder = tmp_path / "out"
    assert sorted(path.name for path in folder.iterdir()) == ["merges.txt", "vocab.json"]
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    assert sorted(vocab.values()) == list(range(800))
    assert vocab["<|endoftext|>"] == 799 == tokenizer.eod
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert merges[0].startswith("#version")
    assert len(merges) == 1 + 800 - 256 - 1
    assert [vocab[line.replace(" ", "")] for line in merges[1:]] == list(range(256, 799))


def test_without_byte_fallback_unknown_characters_are_counted(tmp_path: Path, sample: Sample):
    tokenizer = train_tokenizer(sample, recipe("unigram", tmp_path, 400, byte_fallback=False))
    assert not tokenizer.lossless
    counts = report(tokenizer, ["the 鬱 king", "the king"])
    assert (counts.texts, counts.texts_changed, counts.unknown) == (2, 1, 1)
    assert not counts.is_exact
    assert "1 of 2 texts change" in counts.sentence()
    assert counts.characters_changed >= 1


def test_a_report_counts_bytes_per_token_on_text(trained: Tokenizer):
    counts = report(trained, [JAPANESE, "the king"])
    tokens = len(trained.encode(JAPANESE)) + len(trained.encode("the king"))
    assert counts.bytes_per_token == (len(JAPANESE.encode()) + 8) / tokens
    assert counts.sentence() == "text -> ids -> text is exact"


def test_what_is_there_is_kept_unless_it_may_be_replaced(tmp_path: Path, sample: Sample):
    for name in ("unigram", "byte_bpe"):
        first = recipe(name, tmp_path)
        before = train_tokenizer(sample, first)
        with pytest.raises(ConfigError, match="exists: give another name, or --overwrite"):
            train_tokenizer(sample, replace(first, vocab_size=700))
        assert parse_tokenizer(str(first.out)).fingerprint == before.fingerprint
        again = train_tokenizer(sample, replace(first, vocab_size=700, overwrite=True))
        assert again.vocab_size == 700
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds notes\.txt, which is no part of a tokenizer"):
        train_tokenizer(sample, recipe("byte_bpe", tmp_path, overwrite=True))
    assert (tmp_path / "out" / "vocab.json").exists()


def test_every_problem_of_a_recipe_is_named_at_once(tmp_path: Path, sample: Sample):
    (tmp_path / "out.model").mkdir()
    with pytest.raises(ConfigError) as error:
        train_tokenizer(
            sample,
            recipe("unigram", tmp_path, character_coverage=2.0, control=("MASK", "</s>", "[A]", "[A]")),
        )
    said = "\n".join(map(str, error.value.problems))
    for part in (
        f"--out={tmp_path / 'out.model'} is a folder: give a file",
        "--character-coverage=2.0 is not between 0.98 and 1",
        "--control=MASK is not one word in <> or []: write <MASK>",
        "--control=</s> is there already",
        "--control=[A] is there already",
    ):
        assert part in said


def test_no_text_and_no_place_to_write_are_refused(tmp_path: Path, sample: Sample):
    with pytest.raises(DataError, match="hold no text to train on"):
        train_tokenizer(Sample(1000), recipe("unigram", tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written \("):
        train_tokenizer(sample, replace(recipe("unigram", tmp_path), out=tmp_path / "file" / "x.model"))

"""From a configuration to masked samples: texts, datasets of sentences, refusals, and what is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlm.config.schema import BlendPart, DataConfig, TokenizerConfig
from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.data.masked_lm import masked_samples, masked_validation_sets
from mlm.data.metadata import write_metadata
from mlm.data.prepare import prepare_data, problems
from mlm.data.prepared import PreparedData
from mlm.data.tokenizers import WordPieceTokenizer
from mlm.errors import ConfigError, DataError
from tests.unit.data.masked_lm.sentences import PAPER

BERT = TokenizerConfig(kind="wordpiece")
NOVEL = "\n\n".join(
    f"Mr. Brown, number {i}, came in at noon. He sat down.\nNobody spoke!\n\nWas it {i} then?"
    for i in range(200)
)


def data_of(
    tmp_path: Path, path: Path | None = None, split: tuple[float, ...] = (90, 10, 0), **more
) -> DataConfig:
    return DataConfig(
        name="d",
        path=None if path is None else str(path),
        split=list(split),
        cache_dir=str(tmp_path / "cache"),
        **more,
    )


def prepared(data: DataConfig, seq_length: int = 32, say=lambda line: None) -> PreparedData:
    return prepare_data(data, BERT, 30_522, seq_length, say, "masked_lm")


def written(prefix: Path, documents: list[list[str]], end: list[int] | None = None) -> Path:
    """A dataset of sentences, encoded by BERT's tokenizer; end: ids after each document's last sentence."""
    tokenizer = WordPieceTokenizer()
    with IndexedWriter(prefix, tokenizer.vocab_size) as writer:
        for sentences in documents:
            encoded = [tokenizer.encode(sentence).tolist() for sentence in sentences]
            encoded[-1] += end or []
            writer.add_sentences(encoded)
    return prefix


SPEECHES = [[f"Sentence {i} of speech {j}." for i in range(1 + j % 4)] for j in range(40)]


def test_a_texts_sequences_are_its_sentences_and_its_splits_its_documents(tmp_path: Path):
    (tmp_path / "novel.txt").write_text(NOVEL)
    data = prepared(data_of(tmp_path, tmp_path / "novel.txt"))
    dataset, tokenizer = IndexedDataset(data.prefix), WordPieceTokenizer()
    assert dataset.num_documents == 2
    decoded = [tokenizer.decode(dataset.sequence(number)) for number in range(8)]
    assert decoded[:4] == [
        "mr. brown, number 0, came in at noon.",
        "he sat down.",
        "nobody spoke!",
        "was it 0 then?",
    ]
    assert decoded[4] == "mr. brown, number 1, came in at noon."
    # Beside it in the cache, and not in its place, lies the same text as one sequence a split.
    whole = prepare_data(data_of(tmp_path, tmp_path / "novel.txt"), BERT, 30_522, 32, lambda line: None)
    assert len(IndexedDataset(whole.prefix)) == 2
    assert whole.tokens == data.tokens


def test_a_run_reads_what_was_prepared_from_json(tmp_path: Path):
    written(tmp_path / "d", SPEECHES)
    data = PreparedData.from_json(prepared(data_of(tmp_path, tmp_path / "d", (8, 2, 0))).to_json())
    samples, (valid,) = masked_samples(data, PAPER, 1), masked_validation_sets(data, PAPER)
    # Every fourth document is one sentence; the others fit a sample each.
    assert len(samples) == data.samples_per_epoch == 24
    assert len(valid.samples) == data.valid_samples == 6
    assert (valid.name, valid.weight) == ("d", 1.0)
    batch = samples.batch(np.arange(24))
    assert batch.ids.max() < 30_522
    assert (batch.ids[:, 0] == 101).all()
    unique = {tuple(row) for row in valid.samples.batch(np.arange(6)).ids.tolist()}
    assert len(unique) == 6


def test_counts_are_told(tmp_path: Path):
    written(tmp_path / "d", SPEECHES)
    said: list[str] = []
    prepared(data_of(tmp_path, tmp_path / "d", (1,)), seq_length=11, say=said.append)
    assert said == [
        "d: 50 training samples of two segments, 10 of 40 documents left out (one sentence alone), "
        "50 pairs of sentences cut to fit"
    ]


def test_the_fingerprint_knows_sentences_apart(tmp_path: Path):
    for name, pair in (
        ("a", ["One two.", "Three."]),
        ("b", ["One", "two. Three."]),
        ("c", ["One two.", "Three."]),
    ):
        written(tmp_path / name, [pair] * 4)
    a, b, c = (prepared(data_of(tmp_path, tmp_path / name, (1,))).fingerprint for name in "abc")
    assert a == c != b


def test_one_long_document_is_split_at_a_sentence(tmp_path: Path):
    written(tmp_path / "d", [[f"This is sentence {i}." for i in range(100)]])
    data = prepared(data_of(tmp_path, tmp_path / "d", (9, 1, 0)))
    dataset = IndexedDataset(tmp_path / "d")
    assert data.ranges["train"] == (0, dataset.sequence_starts(np.array([90]))[0])
    assert data.datasets[0].chunks["valid"]["tokens"] == data.tokens["valid"] == 5 * 10


def test_a_blend_counts_and_names_each_dataset(tmp_path: Path):
    written(tmp_path / "a", SPEECHES)
    written(tmp_path / "b", SPEECHES[:20])
    parts = [BlendPart(weight=w, path=str(tmp_path / name)) for w, name in ((3, "a"), (1, "b"), (0, "b"))]
    data = prepared(data_of(tmp_path, None, (8, 2, 0), blend=parts))
    samples = masked_samples(data, PAPER, 1)
    assert len(samples) == data.samples_per_epoch == 24 + 12
    assert [(v.name, v.weight) for v in masked_validation_sets(data, PAPER)] == [("a", 0.75), ("b[1]", 0.25)]
    assert samples.batch(np.arange(9)).ids.shape == (9, 32)


def test_a_dataset_without_sentences_is_refused_with_the_command_that_writes_them(tmp_path: Path):
    tokenizer = WordPieceTokenizer()
    with IndexedWriter(tmp_path / "d", tokenizer.vocab_size) as writer:
        for _ in range(3):
            writer.add_document([7, 8, 9])
    record = {"tokenizer": tokenizer.describe(), "sources": [{"path": "books.jsonl", "bytes": 1}]}
    write_metadata(tmp_path / "d", record)
    (found,) = problems(data_of(tmp_path, tmp_path / "d"), BERT, 30_522, 32, "masked_lm")
    assert str(found) == (
        f"data.path={tmp_path / 'd'} has no sentence borders: its 3 documents are 3 sequences, and "
        "objective=masked_lm pairs the sentences of a document: write it again with a sequence per sentence: "
        "mlm-data prepare books.jsonl --tokenizer wordpiece --split-sentences --out PREFIX"
    )


def test_documents_that_end_with_a_control_token_are_refused(tmp_path: Path):
    written(tmp_path / "d", SPEECHES, end=[102])
    with pytest.raises(
        ConfigError, match=r"ends its documents with \[SEP\].*without --eod: mlm-data prepare"
    ):
        prepared(data_of(tmp_path, tmp_path / "d"))


def test_a_split_without_a_pair_is_refused(tmp_path: Path):
    written(tmp_path / "d", [["One.", "Two."]] * 8 + [["Alone."]] * 2)
    with pytest.raises(
        DataError, match="leaves valid of d 2 documents, 2 of one sentence, and no two sentences"
    ):
        prepared(data_of(tmp_path, tmp_path / "d", (8, 2, 0)))
    assert prepared(data_of(tmp_path, tmp_path / "d", (1,))).valid_samples == 0


@pytest.mark.parametrize("kind", ["char", "byte", "gpt2", "sentencepiece"])
def test_a_tokenizer_without_control_tokens_is_refused(tmp_path: Path, kind: str):
    found = problems(data_of(tmp_path), TokenizerConfig(kind=kind), 60_000, 32, "masked_lm")
    assert [str(problem) for problem in found] == [
        f"tokenizer.kind={kind} has no [MASK] and no [CLS] and no [SEP], and objective=masked_lm puts them "
        "into every sample: use tokenizer=wordpiece, or one trained by mlm-data tokenizer train with "
        "--control '[CLS],[SEP],[MASK],[PAD]'"
    ]


def test_everything_wrong_is_said_at_once(tmp_path: Path):
    written(tmp_path / "d", SPEECHES)
    data = data_of(tmp_path, tmp_path / "d", reset_attention=True)
    found = " | ".join(str(p) for p in problems(data, TokenizerConfig(kind="byte"), 9, 4, "masked_lm"))
    for part in (
        "less than the 257 tokens",
        "has no [MASK]",
        "model.seq_length=4 has no room for",
        "data.reset_attention=true is for packed",
    ):
        assert part in found

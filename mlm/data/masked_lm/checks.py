"""What can be said against data and tokenizer of objective=masked_lm before training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data.bad_data import BadData
from mlm.data.indexed import IndexedDataset
from mlm.data.masked_lm.vocabulary import tokenizer_problem
from mlm.data.metadata import read_metadata
from mlm.data.sources import named_datasets
from mlm.data.tokenizers import Tokenizer
from mlm.data.tokenizers.configured import build
from mlm.errors import Problem

NEXT_TOKEN, MASKED_LM = "next_token", "masked_lm"
# [CLS], [SEP], [SEP] and a token for each segment.
SHORTEST = 5
# Of a dataset, so many documents show how all of them end.
DOCUMENTS_SEEN = 1000


def masked_lm_problems(data: DataConfig, tokenizer: TokenizerConfig, seq_length: int) -> Iterator[Problem]:
    """What is visible without reading tokens."""
    if found := _tokenizer_problem(tokenizer):
        yield found
    if seq_length < SHORTEST:
        wrong = "has no room for [CLS] A [SEP] B [SEP]"
        yield Problem(f"model.seq_length={seq_length}", wrong, f"use {SHORTEST} or more")
    datasets = named_datasets(data)
    for name in ("reset_positions", "reset_attention"):
        if datasets and getattr(data, name):
            wrong = "is for packed documents, and a sample of objective=masked_lm is of one document"
            yield Problem(f"data.{name}=true", wrong, "leave it out")
    for named in datasets:
        try:
            dataset = IndexedDataset(named.prefix)
        except BadData:
            continue  # reported for the dataset itself
        if named.weight and (found := sentences_problem(named.where, dataset)):
            yield found


def sentences_problem(where: str, dataset: IndexedDataset) -> Problem | None:
    """That every document of a dataset is one sequence, so that its sentences are not known."""
    if len(dataset) > dataset.num_documents:
        return None
    return Problem(
        where,
        f"has no sentence borders: its {dataset.num_documents:,} documents are {len(dataset):,} sequences, "
        "and objective=masked_lm pairs the sentences of a document",
        f"write it again with a sequence per sentence: {_command(dataset)}",
    )


def ends_problems(where: str, dataset: IndexedDataset, tokenizer: Tokenizer) -> list[Problem]:
    """That documents end with a control token, which would stand among the words of a sample."""
    documents = np.arange(1, min(dataset.num_documents, DOCUMENTS_SEEN) + 1)
    starts = dataset.document_starts(documents)
    last = dataset.tokens[starts[starts > 0] - 1]
    special = np.array(sorted(set(tokenizer.special.values()) - {tokenizer.special.get("unk")}))
    ended = last[np.isin(last, special)]
    if not len(ended):
        return []
    name = tokenizer.piece(int(ended[0]))
    wrong = f"ends its documents with {name}, and objective=masked_lm places control tokens itself"
    return [Problem(where, wrong, f"write it again without --eod: {_command(dataset)}")]


def _command(dataset: IndexedDataset) -> str:
    """The command that writes such a dataset, as far as its record says."""
    try:
        record = read_metadata(dataset.prefix) or {}
    except BadData:
        record = {}
    inputs = [source["path"] for source in record.get("sources") or []][:2] or ["FILES"]
    tokenizer = record.get("tokenizer") or {"kind": "wordpiece"}
    spec = f"{tokenizer['kind']}:{tokenizer['path']}" if "path" in tokenizer else tokenizer["kind"]
    return f"mlm-data prepare {' '.join(inputs)} --tokenizer {spec} --split-sentences --out PREFIX"


def _tokenizer_problem(config: TokenizerConfig) -> Problem | None:
    if config.kind in ("char", "byte") or (config.kind == "sentencepiece" and config.path is None):
        return tokenizer_problem(config.kind, {})
    try:
        tokenizer = build(config, "", Path())
    except (BadData, AssertionError):
        return None  # reported for tokenizer.*
    return tokenizer_problem(tokenizer.kind, tokenizer.special)

"""mlm-data verify: whether a token dataset is what its index and its record say, all of it read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlm.corpus.progress import TextProgress
from mlm.data.bad_data import BadData
from mlm.data.indexed import CHUNK, IndexedDataset, bin_path, idx_path
from mlm.data.metadata import read_metadata

# Bytes per step of a pass over a file, a multiple of every item size.
STEP_BYTES = 1 << 24


@dataclass
class Verdict:
    """What was found. wrong: one line each; facts: what is said of a sound dataset."""

    prefix: Path
    wrong: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)


def verify(prefix: Path, vocab_size: int | None = None) -> Verdict:
    """Sizes, offsets and order of the index, range of the ids, ends of documents, counts and checksums.

    vocab_size: ids have to be below it; None: below the recorded tokenizer's size, if there is a record.
    """
    verdict = Verdict(prefix)
    record = None
    try:
        record = read_metadata(prefix)
    except BadData as error:
        verdict.wrong.append(str(error))
    try:
        dataset = IndexedDataset(prefix)
    except BadData as error:
        verdict.wrong.append(str(error))
        return verdict
    try:
        dataset.verify()
    except BadData as error:
        verdict.wrong.append(str(error))
    bin_sum, low, high = _pass(dataset)
    _check_ids(verdict, low, high, vocab_size, record)
    if record is None:
        verdict.facts.append(f"no {prefix.name}.json: tokenizer and checksums are not recorded")
    else:
        _check_record(verdict, dataset, record, bin_sum)
    empty = _empty_documents(dataset)
    if empty:
        verdict.facts.append(f"{empty:,} documents without tokens")
    sequences = f" in {len(dataset):,} sequences" if len(dataset) != dataset.num_documents else ""
    verdict.facts.insert(
        0,
        f"{dataset.num_documents:,} documents{sequences}, {len(dataset.tokens):,} tokens of "
        f"{dataset.dtype.name}, ids {low:,} to {high:,}",
    )
    return verdict


def _pass(dataset: IndexedDataset) -> tuple[str, int, int]:
    """sha256 of the .bin, least and greatest id."""
    checksum, low, high = hashlib.sha256(), [], []
    step = STEP_BYTES // dataset.dtype.itemsize
    with TextProgress(f"reading {bin_path(dataset.prefix).name}", dataset.tokens.nbytes) as progress:
        for start in range(0, len(dataset.tokens), step):
            tokens = np.ascontiguousarray(dataset.tokens[start : start + step])
            checksum.update(tokens.data)
            low.append(int(tokens.min()))
            high.append(int(tokens.max()))
            done = start + len(tokens)
            progress.update(done * dataset.dtype.itemsize, tokens.nbytes, f"{done:,} tokens")
    return checksum.hexdigest(), min(low), max(high)


def _check_ids(
    verdict: Verdict, low: int, high: int, vocab_size: int | None, record: dict[str, Any] | None
) -> None:
    whose = "the vocabulary that was given"
    if vocab_size is None and record is not None:
        vocab_size = int(record["tokenizer"]["vocab_size"])
        whose = f"the recorded tokenizer ({record['tokenizer']['kind']})"
    if low < 0:
        verdict.wrong.append(f"{bin_path(verdict.prefix)} holds the id {low:,}, and no id is below 0")
    if vocab_size is not None and high >= vocab_size:
        beyond = f"{bin_path(verdict.prefix)} holds the id {high:,}"
        verdict.wrong.append(f"{beyond}, and {whose} has {vocab_size:,} tokens")


def _check_record(verdict: Verdict, dataset: IndexedDataset, record: dict[str, Any], bin_sum: str) -> None:
    name = f"{dataset.prefix.name}.json"
    found = {
        "documents": dataset.num_documents,
        "tokens": len(dataset.tokens),
        "dtype": dataset.dtype.name,
    }
    for key, value in found.items():
        if key in record and record[key] != value:
            verdict.wrong.append(f"{name} records {key}={record[key]}, and there are {value}")
    sums = record.get("sha256") or {}
    for suffix, path in (("bin", bin_path(dataset.prefix)), ("idx", idx_path(dataset.prefix))):
        if suffix not in sums:
            continue
        actual = bin_sum if suffix == "bin" else _sha256(path)
        if actual != sums[suffix]:
            verdict.wrong.append(
                f"{path} has the checksum {actual[:16]}..., and {name} records {sums[suffix][:16]}...: "
                "it was changed or damaged"
            )
    if sums:
        verdict.facts.append("checksums as recorded")
    if record.get("eod") is not None:
        document = _without_eod(dataset, int(record["eod"]))
        if document is not None:
            verdict.wrong.append(
                f"document {document:,} of {dataset.prefix} does not end with the recorded "
                f"end-of-document id {record['eod']}"
            )
        else:
            verdict.facts.append(f"every document ends with {record['eod']}")


def _without_eod(dataset: IndexedDataset, eod: int) -> int | None:
    """The first document that holds tokens and does not end with eod."""
    for first in range(0, dataset.num_documents, CHUNK):
        documents = np.arange(first, min(first + CHUNK, dataset.num_documents))
        starts, ends = dataset.document_starts(documents), dataset.document_starts(documents + 1)
        # Of a damaged index ends may lie anywhere; what it is was reported already.
        last = np.clip(ends - 1, 0, len(dataset.tokens) - 1)
        wrong = np.flatnonzero((ends > starts) & (dataset.tokens[last] != eod))
        if len(wrong):
            return first + int(wrong[0])
    return None


def _empty_documents(dataset: IndexedDataset) -> int:
    empty = 0
    for first in range(0, dataset.num_documents, CHUNK):
        documents = np.arange(first, min(first + CHUNK, dataset.num_documents))
        starts, ends = dataset.document_starts(documents), dataset.document_starts(documents + 1)
        empty += int((ends == starts).sum())
    return empty


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

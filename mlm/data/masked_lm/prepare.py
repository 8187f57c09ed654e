"""Which sentences make the samples of a run: found once by the launcher, cached, mapped by every worker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.config.schema import DataConfig
from mlm.data.cache import cache_key, cache_root, cached
from mlm.data.indexed import IndexedDataset, bin_path, idx_path
from mlm.data.masked_lm.chunks import build_chunks
from mlm.data.masked_lm.samples import CONTROLS
from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.data.sentences import MAX_SENTENCE_CHARACTERS, SentenceCounts, split_sentences
from mlm.errors import DataError, Problem

# Part of the cache's key: raise it when the same sentences are to give other chunks.
FORMAT = 2
SPLITS = ("train", "valid")

Say = Callable[[str], None]


def sentences_of(text: str) -> list[str]:
    """The sentences of a run's text, each with the space before it; an empty line ends one as well."""
    return split_sentences(text, MAX_SENTENCE_CHARACTERS, SentenceCounts()) if text else []


def with_chunks(data: PreparedData, config: DataConfig, say: Say) -> PreparedData:
    """The same data with its samples of masked_lm. Raises DataError when a split asked for has none."""
    datasets, problems, checksums = [], [], [data.fingerprint]
    for dataset in data.datasets:
        if not dataset.weight:
            nothing = {
                name: dict.fromkeys(("documents", "single", "chunks", "cut", "tokens"), 0) for name in SPLITS
            }
            datasets.append(replace(dataset, chunks=nothing))
            continue
        found, checksum = _with_chunks(dataset, data.seq_length, config.cache_dir)
        checksums.append(checksum)
        datasets.append(found)
        say(_told(found))
        problems += _problems(found, config, data.seq_length)
    if problems:
        raise DataError("; ".join(map(str, problems)))
    # The same tokens with other sentences are other data.
    fingerprint = hashlib.sha256(json.dumps(checksums).encode()).hexdigest()
    return replace(data, datasets=tuple(datasets), fingerprint=fingerprint, valid_characters_scored=None)


def chunks_of(dataset: PreparedDataset, split: str) -> NDArray[np.int64]:
    """The chunks of a split, mapped. Shapes: [chunks, 2]."""
    assert dataset.chunk_folder is not None, "the data was prepared for another objective"
    return np.load(Path(dataset.chunk_folder) / f"{split}.npy", mmap_mode="r")


def _with_chunks(
    dataset: PreparedDataset, seq_length: int, cache_dir: str | None
) -> tuple[PreparedDataset, str]:
    """The dataset with its chunks, and a checksum of where its sentences and documents end."""
    opened = IndexedDataset(dataset.prefix)
    budget = seq_length - CONTROLS

    def fill(folder: Path) -> dict[str, Any]:
        counts: dict[str, Any] = {}
        for name in SPLITS:
            chunks, counted = build_chunks(opened, _borders(opened, *dataset.ranges[name]), budget)
            np.save(folder / f"{name}.npy", chunks)
            counts[name] = asdict(counted)
        ends = hashlib.sha256(np.ascontiguousarray(opened.lengths).data)
        ends.update(np.ascontiguousarray(opened.document_index).data)
        return {"counts": counts, "sentences_sha256": ends.hexdigest()}

    stats = [file(opened.prefix).stat() for file in (bin_path, idx_path)]
    key = cache_key(
        format=FORMAT,
        files=[str(opened.prefix), *((stat.st_size, stat.st_mtime_ns) for stat in stats)],
        ranges=[dataset.ranges[name] for name in SPLITS],
        budget=budget,
    )
    folder, info = cached(cache_root(cache_dir), key, fill)
    return replace(dataset, chunks=info["counts"], chunk_folder=str(folder)), info["sentences_sha256"]


def _borders(dataset: IndexedDataset, start: int, stop: int) -> NDArray[np.int64]:
    """The sentences with which the documents of tokens [start, stop) begin, and the end of the last one."""
    pointers, index = dataset.pointers, dataset.document_index
    first, last = (int(np.searchsorted(pointers, at * dataset.dtype.itemsize)) for at in (start, stop))
    inside = index[np.searchsorted(index, first, side="right") : np.searchsorted(index, last)]
    return np.concatenate([[first], inside, [last]]).astype(np.int64)


def _told(dataset: PreparedDataset) -> str:
    assert dataset.chunks is not None, "it was just given them"
    train = dataset.chunks["train"]
    told = f"{dataset.name}: {train['chunks']:,} training samples of two segments"
    if train["single"]:
        told += f", {train['single']:,} of {train['documents']:,} documents left out (one sentence alone)"
    if train["cut"]:
        told += f", {train['cut']:,} pairs of sentences cut to fit"
    return told


def _problems(dataset: PreparedDataset, config: DataConfig, seq_length: int) -> list[Problem]:
    """A split that is asked for and has no sample."""
    assert dataset.chunks is not None, "it was just given them"
    shares = ",".join(f"{share:g}" for share in config.split)
    return [
        Problem(
            f"data.split=[{shares}]",
            f"leaves {name} of {dataset.name} {dataset.chunks[name]['documents']:,} documents, "
            f"{dataset.chunks[name]['single']:,} of one sentence, and no two sentences of one document",
            "use documents of more sentences, or other shares; [1,0,0] trains without validation",
        )
        for name, share in zip(SPLITS, (1.0, *config.split[1:2]), strict=False)
        if share > 0 and not dataset.chunks[name]["chunks"]
    ]

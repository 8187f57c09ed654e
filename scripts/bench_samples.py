#!/usr/bin/env python3
"""How fast training samples are found and read, as one JSON line.

    python scripts/bench_samples.py

Two synthetic datasets in a temporary folder: one of 10^6 documents and 10^9 tokens, of which only the index
is looked at, for the order of an epoch; and one of 10^5 documents and 10^8 tokens (200 MB, read once before,
so that it is in the page cache), from which random samples of 1,024 tokens and one more are read, as int64,
in batches. For masked_lm: which sentences make the samples of 10^6 documents of 20 sentences of 25 tokens on
average, and random samples of 128 and 512 tokens of them, on BERT's vocabulary, 8 and 512 at once. One core.
Rates are per second of CPU time, steadier on a machine that others use too, and per second of the clock.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.blend import Blend
from mlm.data.documents import DocumentStream
from mlm.data.indexed import DTYPES, HEADER, MAGIC, VERSION, IndexedDataset, bin_path, idx_path
from mlm.data.masked_lm.chunks import build_chunks
from mlm.data.masked_lm.masking import Masking
from mlm.data.masked_lm.samples import CONTROLS, ChunkSamples
from mlm.data.masked_lm.vocabulary import Vocabulary
from mlm.data.samples import BlendedWindows, DocumentWindows, Samples, TokenWindows
from mlm.data.tokenizers import BERT_VOCAB_SIZE, WordPieceTokenizer

SEQ_LENGTH = 1024
MEAN_LENGTH = 1000
SENTENCES, SENTENCE_LENGTH = 20, 25
PAPER = SimpleNamespace(mask_rate=0.15, max_ngram=3, mask_share=0.8, random_share=0.1)
UINT16 = 8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=512, help="samples read at once")
    parser.add_argument("--batches", type=int, default=40, help="batches of each repeat")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many is reported")
    args = parser.parse_args()
    print(json.dumps(measure(args.batch, args.batches, args.repeats)))


def measure(batch: int = 512, batches: int = 40, repeats: int = 3) -> dict[str, Any]:
    """The figures by name: seconds and bytes of an epoch's order, samples per second of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "epoch_order": _epoch_order(Path(folder), repeats),
            "samples_per_s": _sample_rates(Path(folder), batch, batches, repeats),
            "masked_lm": _masked_lm(Path(folder), repeats),
        }


def _epoch_order(folder: Path, repeats: int) -> dict[str, float]:
    lengths = np.random.default_rng(0).geometric(1 / MEAN_LENGTH, 10**6)
    dataset = _dataset(folder / "large", lengths, None)
    cpu_s, wall_s = [], []
    for _ in range(repeats):
        stream = DocumentStream(dataset, 0, dataset.num_documents, 1, shuffle=True)
        cpu, wall = time.process_time(), time.perf_counter()
        index = stream.group_starts(0)
        cpu_s.append(time.process_time() - cpu)
        wall_s.append(time.perf_counter() - wall)
    stream = DocumentStream(dataset, 0, dataset.num_documents, 1, shuffle=True)
    tracemalloc.start()
    stream.group_starts(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "documents": dataset.num_documents,
        "tokens": len(dataset.tokens),
        "cpu_s": round(min(cpu_s), 4),
        "wall_s": round(min(wall_s), 4),
        "kept_bytes": index.nbytes,
        "peak_bytes": peak,
    }


def _sample_rates(folder: Path, batch: int, batches: int, repeats: int) -> dict[str, dict[str, int]]:
    rng = np.random.default_rng(0)
    lengths = rng.geometric(1 / MEAN_LENGTH, 10**5)
    ids = rng.integers(0, 50_257, int(lengths.sum())).astype("<u2")
    dataset = _dataset(folder / "read", lengths, ids)
    dataset.tokens.max()  # into the page cache, and this process's map of it
    total, documents = len(dataset.tokens), dataset.num_documents
    plain = TokenWindows(dataset.tokens, 0, total, SEQ_LENGTH, seed=1)
    shuffled = DocumentWindows(DocumentStream(dataset, 0, documents, 1, shuffle=True), SEQ_LENGTH, seed=1)
    blended = BlendedWindows(Blend([0.3, 0.7]), [plain, shuffled])

    def rate(read: Callable[[NDArray[np.int64]], object]) -> dict[str, int]:
        cpu_s, wall_s = [], []
        for repeat in range(repeats):
            cpu, wall = time.process_time(), time.perf_counter()
            for index in range(batches):
                first = (repeat * batches + index) * batch
                read(np.arange(first, first + batch))
            cpu_s.append(time.process_time() - cpu)
            wall_s.append(time.perf_counter() - wall)
        samples = batch * batches
        return {"by_cpu": round(samples / min(cpu_s)), "by_clock": round(samples / min(wall_s))}

    kinds: dict[str, Samples] = {
        "file order": plain,
        "shuffled documents": shuffled,
        "a blend of both": blended,
    }
    found = {name: rate(samples.batch) for name, samples in kinds.items()}
    found["shuffled documents, with their starts"] = rate(shuffled.packed)
    return found


def _masked_lm(folder: Path, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    sizes = rng.geometric(1 / SENTENCES, 10**6)
    lengths = rng.geometric(1 / SENTENCE_LENGTH, int(sizes.sum()))
    index = np.concatenate([[0], np.cumsum(sizes)])
    large = _dataset(folder / "sentences", lengths, None, index)
    found: dict[str, Any] = {"documents": len(sizes), "sentences": len(lengths), "tokens": len(large.tokens)}
    for seq_length in (128, 512):
        cpu, wall = time.process_time(), time.perf_counter()
        chunks, _ = build_chunks(large, large.document_index, seq_length - CONTROLS)
        cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
        vocabulary = Vocabulary.of(WordPieceTokenizer())
        # A part that fits the page cache, of random words as long as BERT's.
        few = chunks[: len(chunks) // 20]
        some = lengths[: int(few[-1].sum())]
        ids = rng.integers(1000, BERT_VOCAB_SIZE, int(some.sum())).astype("<u2")
        dataset = _dataset(folder / f"read{seq_length}", some, ids, np.array([0, len(some)]))
        samples = ChunkSamples(dataset, few, Masking(vocabulary, PAPER, seq_length), seed=1)
        rates = {f"{batch} at once": _rate(samples, batch, repeats) for batch in (8, 512)}
        found[f"seq_length {seq_length}"] = {
            "samples": len(chunks),
            "cpu_s": round(cpu_s, 2),
            "wall_s": round(wall_s, 2),
            "samples_per_s": rates,
        }
    return found


def _rate(samples: ChunkSamples, batch: int, repeats: int) -> int:
    """Samples per second of CPU time, the best of the repeats."""
    best, number = 0.0, 0
    for _ in range(repeats):
        begin = number
        cpu = time.process_time()
        while time.process_time() < cpu + 0.5:
            samples.batch(np.arange(number, number + batch))
            number += batch
        best = max(best, (number - begin) / (time.process_time() - cpu))
    return round(best)


def _dataset(
    prefix: Path, lengths: NDArray[Any], ids: NDArray[Any] | None, index: NDArray[Any] | None = None
) -> IndexedDataset:
    """Sequences of these lengths; without ids a hole of the right size takes their place.

    index: the sequence with which each document begins, and their number; None: each is a document.
    """
    index = np.arange(len(lengths) + 1) if index is None else index
    sizes = lengths.astype(np.int64) * DTYPES[UINT16].itemsize
    with open(idx_path(prefix), "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, UINT16, len(lengths), len(index)))
        for array in (lengths.astype("<i4"), np.cumsum(sizes) - sizes, index):
            file.write(array.tobytes())
    with open(bin_path(prefix), "wb") as file:
        if ids is None:
            file.truncate(int(sizes.sum()))
        else:
            file.write(ids.tobytes())
    return IndexedDataset(prefix)


if __name__ == "__main__":
    main()

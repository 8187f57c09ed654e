#!/usr/bin/env python3
"""How fast training samples are found and read, as one JSON line.

    python scripts/bench_samples.py

Two synthetic datasets in a temporary folder: one of 10^6 documents and 10^9 tokens, of which only the index
is looked at, for the order of an epoch; and one of 10^5 documents and 10^8 tokens (200 MB, read once before,
so that it is in the page cache), from which random samples of 1,024 tokens and one more are read, as int64,
in batches. One core. Rates are per second of CPU time, steadier on a machine that others use too, and per
second of the clock.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.blend import Blend
from mlm.data.documents import DocumentStream
from mlm.data.indexed import DTYPES, HEADER, MAGIC, VERSION, IndexedDataset, bin_path, idx_path
from mlm.data.samples import BlendedWindows, DocumentWindows, Samples, TokenWindows

SEQ_LENGTH = 1024
MEAN_LENGTH = 1000
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


def _dataset(prefix: Path, lengths: NDArray[Any], ids: NDArray[Any] | None) -> IndexedDataset:
    """Documents of these lengths; without ids a hole of the right size takes their place."""
    sizes = lengths.astype(np.int64) * DTYPES[UINT16].itemsize
    with open(idx_path(prefix), "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, UINT16, len(lengths), len(lengths) + 1))
        for array in (lengths.astype("<i4"), np.cumsum(sizes) - sizes, np.arange(len(lengths) + 1)):
            file.write(array.tobytes())
    with open(bin_path(prefix), "wb") as file:
        if ids is None:
            file.truncate(int(sizes.sum()))
        else:
            file.write(ids.tobytes())
    return IndexedDataset(prefix)


if __name__ == "__main__":
    main()

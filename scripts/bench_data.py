#!/usr/bin/env python3
"""How fast mlm-data prepare encodes for GPT-2 on this machine, beside the bare libraries, in one run.

    python scripts/bench_data.py classics_24mb.jsonl --megabytes 500

Prints one JSON line: MB of UTF-8 text a second of each library alone on one core, of the whole command
(reading, JSON, encoding, writing; start-up apart) with one worker and with one a core, and the ratios; and
MB per second of CPU time of all its processes, start-up included, the steadier figure on a machine that
others use too. The file is repeated until it has the size asked for. Use texts of your own kind: rates differ
between kinds. `--samples` adds what scripts/bench_samples.py measures of reading datasets.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlm.corpus.preparing.engines import build, choose, engine_names
from mlm.corpus.preparing.options import Options
from mlm.corpus.preparing.prepare import Outcome, prepare
from mlm.corpus.reading.documents import documents
from mlm.corpus.reading.inputs import find_sources
from mlm.data.tokenizers import Gpt2Tokenizer

# Of the slowest library, seconds are enough; the others get the same texts.
BARE_BYTES = 12_000_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input", type=Path, help="a .jsonl file with a text in each line")
    parser.add_argument("--megabytes", type=int, default=500, help="size of the input of the whole command")
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement; the median counts")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--samples", action="store_true", help="measure the reading of samples as well")
    args = parser.parse_args()
    report = measure(args.input, args.megabytes * 10**6, args.repeats, args.folder)
    if args.samples:
        import bench_samples

        report["samples"] = bench_samples.measure()
    print(json.dumps(report))


def measure(path: Path, size: int, repeats: int, parent: Path | None) -> dict[str, Any]:
    tokenizer = Gpt2Tokenizer()
    engine = choose(tokenizer)
    texts = _texts(path, BARE_BYTES)
    bare = {name: _bare_rate(name, tokenizer, texts, repeats) for name in engine_names(tokenizer)}
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        repeated = Path(folder) / "input.jsonl"
        with open(repeated, "wb") as target:
            while target.tell() < size:
                with open(path, "rb") as source:
                    shutil.copyfileobj(source, target)
        whole = {count: _whole(repeated, count, repeats) for count in sorted({1, cores})}
    rates = {count: statistics.median(_rate(run) for run, _ in runs) for count, runs in whole.items()}
    per_core = rates[cores] / cores
    runs = [run for run, _ in whole[cores]]
    per_cpu_s = statistics.median(_text_bytes(run) / cpu_s / 1e6 for run, cpu_s in whole[cores])
    return {
        "input_mb": round(size / 1e6),
        "engine": engine,
        "bare_mb_per_s": {name: round(rate, 1) for name, rate in bare.items()},
        "prepare_mb_per_s": {f"{count}_workers": round(rate, 1) for count, rate in rates.items()},
        "prepare_mb_per_s_per_core": round(per_core, 1),
        "prepare_mb_per_cpu_s": round(per_cpu_s, 1),
        "startup_s": round(statistics.median(run.startup_s for run in runs), 2),
        "finishing_s": round(statistics.median(run.finishing_s for run in runs), 2),
        "prepare_per_core_over_bare_engine": round(per_core / bare[engine], 2),
        "prepare_per_core_over_bare_tiktoken": round(per_core / bare["tiktoken"], 2),
        "prepare_per_core_over_bare_tokenizers": round(per_core / bare["tokenizers"], 2),
        "cores": cores,
        "load": round(os.getloadavg()[0], 1),
        "versions": {name: version(name) for name in bare},
        "python": platform.python_version(),
    }


def _texts(path: Path, enough: int) -> list[str]:
    """Texts from the beginning of a file, so many bytes of them."""
    texts, size = [], 0
    for document in documents(find_sources([str(path)]).sources):
        texts.append(document.texts[0])
        size += len(document.texts[0].encode())
        if size >= enough:
            break
    return texts


def _bare_rate(name: str, tokenizer: Gpt2Tokenizer, texts: list[str], repeats: int) -> float:
    """MB a second of one library on one core, a text after the other, warm."""
    encode = build(name, lambda: tokenizer)
    size = sum(len(text.encode()) for text in texts)
    times = []
    for _ in range(repeats + 1):
        begun_s = time.process_time()
        for text in texts:
            encode(text)
        times.append(time.process_time() - begun_s)
    return size / statistics.median(times[1:]) / 1e6


def _whole(path: Path, workers: int, repeats: int) -> list[tuple[Outcome, float]]:
    """Each run with the CPU seconds of all its processes."""
    options = Options(inputs=(str(path),), prefix=path.parent / "made", workers=workers, overwrite=True)
    runs = []
    for _ in range(repeats):
        before_s = _cpu_s()
        outcome = prepare(options, say=lambda line: None)
        runs.append((outcome, _cpu_s() - before_s))
    return runs


def _cpu_s() -> float:
    """CPU time of this process and of those that it started and that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _text_bytes(outcome: Outcome) -> int:
    return sum(int(part["bytes_of_text"]) for part in outcome.parts.values())


def _rate(outcome: Outcome) -> float:
    """MB of text a second, start-up left out."""
    return _text_bytes(outcome) / (outcome.encoding_s + outcome.finishing_s) / 1e6


if __name__ == "__main__":
    # One core means one: the library `tokenizers` starts a thread for each otherwise.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()

#!/usr/bin/env python3
"""Evaluation throughput against lm-evaluation-harness on the same weights and requests, as one JSON line.

    python scripts/bench_eval.py [model=gpt2_small_cpu] --limit 16

Random weights, one thread, and requests with the lengths of the real tasks: `lambada` scores the last word of
passages, `wikitext_overlapping` the last 32 tokens of windows advanced by 32, `wikitext` all tokens of
windows side by side. When lm_eval and transformers can be imported, their HFLM scores the same requests in
turn with ours, batch by batch as it sorts them itself, with the same precision of fp32 products; without
them only our rates are given. Rates are tokens read per second of CPU time, steady on a machine that others
use too, and per second of the clock; padding is not counted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_model import random_model, start_as_worker

from mlm.eval.requests import Scores, Segment

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the weight mapping that the tests prove

LAMBADA_PIECES = (4013, 913, 208, 16, 3)
"""How many last words have 1, 2, ... tokens in the real test set, GPT-2's BPE."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="key=value as for mlm-train (model=...)")
    parser.add_argument("--limit", type=int, default=16, help="thousands of tokens read per task and repeat")
    parser.add_argument("--tasks", default="lambada,wikitext_overlapping,wikitext")
    parser.add_argument("--batch-tokens", type=int, default=1024, help="tokens of one of our batches")
    parser.add_argument("--lm-eval-batch", type=int, default=8, help="requests of one of lm_eval's batches")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, in turn; medians are reported")
    parser.add_argument("--matmul", default="auto", help="precision of fp32 products: highest, medium, auto")
    parser.add_argument("--no-lm-eval", action="store_true", help="measure ours alone")
    args = parser.parse_args()

    start_as_worker()
    print(json.dumps(_measure(args)))


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    from mlm.eval.score import score

    subject = random_model(args.overrides, args.matmul)
    config, model, mesh, device, matmul = subject

    def ours(segments: list[Segment]) -> Scores:
        return score(
            model,
            segments,
            seq_length=config.seq_length,
            vocab_size=config.vocab_size,
            batch_tokens=args.batch_tokens,
            mesh=mesh,
            device=device,
        )

    theirs = None
    if not args.no_lm_eval and all(map(importlib.util.find_spec, ("lm_eval", "transformers"))):
        theirs = _lm_eval(config, subject.weights(), args.lm_eval_batch)
    report: dict[str, Any] = {
        "model": config.name,
        "matmul": matmul,
        "threads": 1,
        "batch_tokens": args.batch_tokens,
        "lm_eval_batch": args.lm_eval_batch if theirs else None,
        "lm_eval": _version("lm_eval") if theirs else None,
        "transformers": _version("transformers") if theirs else None,
        "torch": torch.__version__,
        "load_average": round(os.getloadavg()[0], 1),
    }
    for task in args.tasks.split(","):
        segments = _requests(task, args.limit * 1000, config.seq_length, config.vocab_size)
        report[task] = _compare(segments, ours, theirs, args.repeats)
    return report


def _compare(
    segments: list[Segment],
    ours: Callable[[list[Segment]], Scores],
    theirs: Callable[[list[Segment]], Scores] | None,
    repeats: int,
) -> dict[str, Any]:
    tokens = sum(len(segment.tokens) - 1 for segment in segments)
    engines = {"mlm": ours} | ({"lm_eval": theirs} if theirs else {})
    cpu: dict[str, list[float]] = {name: [] for name in engines}
    wall: dict[str, list[float]] = {name: [] for name in engines}
    scores = {name: engine(segments[:4]) for name, engine in engines.items()}  # warms up
    for _ in range(repeats):
        for name, engine in engines.items():
            cpu_start, wall_start = time.process_time(), time.perf_counter()
            scores[name] = engine(segments)
            cpu[name].append(time.process_time() - cpu_start)
            wall[name].append(time.perf_counter() - wall_start)
    report: dict[str, Any] = {
        "requests": len(segments),
        "tokens": tokens,
        "scored": sum(segment.scored for segment in segments),
    }
    for name in engines:
        report[f"{name}_tokens_per_cpu_s"] = round(tokens / statistics.median(cpu[name]), 1)
        report[f"{name}_tokens_per_s"] = round(tokens / statistics.median(wall[name]), 1)
    if theirs:
        pairs = zip(cpu["lm_eval"], cpu["mlm"], strict=True)
        difference = np.abs(scores["mlm"].nll - scores["lm_eval"].nll)
        report["ratio"] = round(statistics.median(t / o for t, o in pairs), 2)
        report["largest_difference_nats"] = float(f"{difference.max():.2g}")
        report["largest_relative_difference"] = float(f"{(difference / scores['mlm'].nll).max():.2g}")
        report["greedy_differs"] = int((scores["mlm"].all_greedy != scores["lm_eval"].all_greedy).sum())
    return report


def _requests(task: str, tokens: int, seq_length: int, vocab_size: int) -> list[Segment]:
    """Requests of a task that read about so many tokens. Ids are random: only lengths cost time."""
    generator = np.random.default_rng(0)
    segments: list[Segment] = []
    read = 0
    while read < tokens:
        if task == "lambada":
            length = min(seq_length, max(16, round(generator.normal(80, 17))))
            pieces = np.array(LAMBADA_PIECES) / sum(LAMBADA_PIECES)
            scored = 1 + int(generator.choice(len(pieces), p=pieces))
        else:
            length, scored = seq_length, 32 if task == "wikitext_overlapping" else seq_length
        segments.append(Segment(generator.integers(0, vocab_size, length + 1), scored))
        read += length
    return segments


def _lm_eval(config: Any, weights: dict[str, Any], batch: int) -> Callable[[list[Segment]], Scores]:
    """Their way from the same requests to the same figures; HFLM is what `lm_eval --model hf` runs."""
    warnings.simplefilter("ignore")
    import logging

    logging.disable(logging.WARNING)
    from lm_eval.models.huggingface import HFLM
    from transformers import GPT2TokenizerFast

    from mlm.data.tokenizers import GPT2_FOLDER
    from tests.transformers_gpt2 import as_transformers

    # HFLM wants a tokenizer, though requests of ids never use it.
    tokenizer = GPT2TokenizerFast(str(GPT2_FOLDER / "vocab.json"), str(GPT2_FOLDER / "merges.txt"))
    hflm = HFLM(
        pretrained=as_transformers(config, weights), tokenizer=tokenizer, device="cpu", batch_size=batch
    )

    def scored(segments: list[Segment]) -> Scores:
        requests = []
        for segment in segments:
            ids = segment.tokens.tolist()
            requests.append((("", ""), ids[: -segment.scored], ids[-segment.scored :]))
        answers = hflm._loglikelihood_tokens(requests, disable_tqdm=True)
        greedy = np.array([right for _, right in answers])
        return Scores(np.array([-value for value, _ in answers]), greedy, greedy)

    return scored


def _version(package: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(package)


if __name__ == "__main__":
    main()

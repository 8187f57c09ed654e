#!/usr/bin/env python3
"""Tokens per second of generation, cached, uncached and by transformers, on the same weights, as JSON.

    python scripts/bench_generate.py [model=gpt2_small_cpu] --prompt 64 --new 64

Random weights, greedy, one thread, no end of document, so that every engine makes the same number of tokens.
transformers' generate (with its own cache) is measured in turn with ours where it can be imported. Of each
batch size: new tokens per second of CPU time, prompts included, medians of the repeats; and whether all
engines made the same tokens.
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

from bench_model import random_model, start_as_worker

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the weight mapping that the tests prove

Make = Callable[[list[list[int]]], list[list[int]]]
"""Prompts -> the new tokens of each."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="key=value as for mlm-train (model=...)")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens to make of each")
    parser.add_argument("--batches", default="1,8", help="numbers of prompts at once")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, in turn; medians are reported")
    parser.add_argument("--matmul", default="auto", help="precision of fp32 products: highest, medium, auto")
    parser.add_argument("--no-uncached", action="store_true", help="leave out the slow one")
    args = parser.parse_args()

    start_as_worker()
    print(json.dumps(_measure(args)))


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    from mlm.generate.engine import Engine, Limits, Text
    from mlm.generate.sampling import Sampling

    subject = random_model(args.overrides, args.matmul)
    config, model, mesh, device, matmul = subject

    def ours(use_cache: bool) -> Make:
        def make(prompts: list[list[int]]) -> list[list[int]]:
            engine = Engine(
                model=model,
                seq_length=config.seq_length,
                vocab_size=config.vocab_size,
                tp=mesh.tp,
                device=device,
                rows=len(prompts),
                use_cache=use_cache,
            )
            texts = [Text(list(prompt), prompt=number) for number, prompt in enumerate(prompts)]
            for _ in engine.run(texts, Sampling(temperature=0), Limits(new_tokens=args.new)):
                pass
            return [text.ids[text.prompt_tokens :] for text in texts]

        return make

    engines: dict[str, Make] = {"cached": ours(True)}
    if not args.no_uncached:
        engines["uncached"] = ours(False)
    has_transformers = importlib.util.find_spec("transformers") is not None
    if has_transformers:
        engines["transformers"] = _transformers(config, subject.weights(), args.new)
    report: dict[str, Any] = {
        "model": config.name,
        "prompt_tokens": args.prompt,
        "new_tokens": args.new,
        "matmul": matmul,
        "threads": 1,
        "torch": torch.__version__,
        "transformers": _version("transformers") if has_transformers else None,
        "load_average": round(os.getloadavg()[0], 1),
    }
    generator = torch.Generator().manual_seed(1)
    for batch in map(int, args.batches.split(",")):
        prompts = torch.randint(config.vocab_size, (batch, args.prompt), generator=generator).tolist()
        report[f"batch_{batch}"] = _compare(engines, prompts, args.new, args.repeats)
    return report


def _compare(engines: dict[str, Make], prompts: list[list[int]], new: int, repeats: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    made = {}
    engines["cached"](prompts[:1])  # warms up
    for _ in range(repeats):
        for name, make in engines.items():
            start = time.process_time()
            made[name] = make(prompts)
            seconds[name].append(time.process_time() - start)
    tokens = len(prompts) * new
    report: dict[str, Any] = {
        f"{name}_tokens_per_cpu_s": round(tokens / statistics.median(times), 1)
        for name, times in seconds.items()
    }
    for name in engines:
        if name != "cached":
            pairs = zip(seconds[name], seconds["cached"], strict=True)
            report[f"ratio_to_{name}"] = round(statistics.median(t / o for t, o in pairs), 2)
            report[f"same_tokens_as_{name}"] = made[name] == made["cached"]
    return report


def _transformers(config: Any, weights: dict[str, Any], new: int) -> Make:
    """Their way from the same prompts to the same tokens."""
    warnings.simplefilter("ignore")
    import logging

    logging.disable(logging.WARNING)
    import torch

    from tests.transformers_gpt2 import as_transformers

    theirs = as_transformers(config, weights)

    def make(prompts: list[list[int]]) -> list[list[int]]:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            made = theirs.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new, pad_token_id=0
            )
        found: list[list[int]] = made[:, ids.shape[1] :].tolist()
        return found

    return make


def _version(package: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(package)


if __name__ == "__main__":
    main()

"""One worker process of mlm-eval: `python -m mlm.eval.worker OUT/config.yaml`."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from mlm.config.schema import EvalConfig
from mlm.config.store import load_config
from mlm.files import write_whole
from mlm.launch.worker import leave, listen, place_of, work

logger = logging.getLogger("mlm")


def main(config_path: str | Path) -> int:
    """Evaluate as the resolved configuration says; returns the process's exit code, 0 or 1."""
    listen(orderly=False)
    config = load_config(config_path, EvalConfig)
    assert config.out is not None, "the launcher resolves out"
    out = Path(config.out)
    return work(lambda: _watched(config, out), out, "mlm-eval")


def _watched(config: EvalConfig, out: Path) -> None:
    from mlm.train.watchdog import Watchdog, watch

    with Watchdog(out, config.launch.timeout_s, nccl=config.launch.device == "cuda"):
        watch("the evaluation")
        _evaluate(config)


def _evaluate(config: EvalConfig) -> None:
    from mlm.eval.labelled import is_labelled
    from mlm.eval.labelled_run import evaluate_labelled
    from mlm.eval.load import load_for_evaluation
    from mlm.eval.locate import resolve_checkpoint
    from mlm.eval.progress import EvalProgress
    from mlm.eval.report import as_json, table
    from mlm.eval.run import evaluate, prepare_task
    from mlm.parallel.device import autocast_for, device_name
    from mlm.train.log import set_up_logging

    assert config.out is not None
    assert config.checkpoint is not None
    out = Path(config.out)
    set_up_logging(int(os.environ.get("RANK", 0)), out, "eval.log")
    place = place_of(config)
    mesh, device, first = place.mesh, place.device, place.mesh.rank == 0
    autocast = autocast_for(config.precision.name, device)
    if is_labelled(config):
        found = evaluate_labelled(config, mesh=mesh, device=device, autocast=autocast, out=out)
        if first:
            about = {"name": config.precision.name, "matmul": place.matmul_precision}
            path = _write(config, {"directory": config.checkpoint}, about, [found], found["seconds"])
            logger.info(f"  {found['predictions']}, {path}")
        return
    loaded = load_for_evaluation(resolve_checkpoint(config.checkpoint), mesh=mesh, device=device)
    logger.info(
        f"{loaded.config.name}, step {loaded.description['step']}, {loaded.tokenizer.name}, context "
        f"{loaded.config.seq_length:,}; tp={mesh.tp.size} dp={mesh.dp.size} on {device_name(device)}, "
        f"{config.precision.name}, fp32 products at {place.matmul_precision}"
    )
    tasks = [
        prepare_task(
            name,
            config.task_paths,
            loaded.tokenizer,
            context=loaded.config.seq_length,
            limit=config.limit,
        )
        for name in config.tasks
    ]
    progress = EvalProgress(enabled=first)
    began = time.perf_counter()
    try:
        results = evaluate(
            loaded.model,
            tasks,
            vocab_size=loaded.config.vocab_size,
            batch_tokens=config.batch_tokens,
            mesh=mesh,
            device=device,
            autocast=autocast,
            progress=progress,
        )
    finally:
        progress.close()
    if not first:
        return
    for result in results:
        logger.info("\n" + table(result))
    seconds = time.perf_counter() - began
    tokens = sum(result.tokens for result in results)
    about = {"name": config.precision.name, "matmul": place.matmul_precision}
    path = _write(config, loaded.description, about, as_json(results), seconds)
    logger.info(f"\n{tokens:,} tokens in {seconds:,.1f} s, {tokens / seconds:,.0f} tokens/s; {path}")


def _write(
    config: EvalConfig,
    checkpoint: dict[str, Any],
    precision: dict[str, str],
    results: list[dict[str, Any]],
    seconds: float,
) -> Path:
    """eval.json: whole or not at all, so that one that is there can be trusted."""
    assert config.out is not None
    out = Path(config.out)
    environment = json.loads((out / "environment.json").read_text(encoding="utf-8"))
    found = {
        "checkpoint": checkpoint,
        "layout": {"tp": config.tp, "dp": config.dp, "device": config.launch.device},
        "precision": precision,
        "limit": config.limit,
        "batch_tokens": config.batch_tokens or "by kind of device",
        "seconds": seconds,
        "command": environment["command"],
        "started": environment["started"],
        "versions": environment["versions"],
        "source": environment["source"],
        "tasks": results,
    }
    path = out / "eval.json"
    write_whole(path, json.dumps(found, indent=2, allow_nan=False) + "\n")
    return path


if __name__ == "__main__":
    leave(main(sys.argv[1]))

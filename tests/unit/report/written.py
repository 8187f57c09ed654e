"""Run directories and studies written by hand, line by line, with times that the tests choose."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mlm.config.compose import compose
from mlm.config.schema import TrainConfig
from mlm.config.store import load_config, save_config
from mlm.studies.identity import config_hash

ENVIRONMENT: dict[str, Any] = {
    "started": "2026-01-01T00:00:00+0000",
    "command": ["mlm-train", "model=gpt2_tiny", "data.path=my text.txt"],
    "versions": {"python": "3.12.1", "mlm": "0.1.0", "torch": "2.13.0"},
    "source": {"commit": "a" * 40, "modified": False},
    "host": "host-1",
    "platform": "Linux",
    "machine": {"cores": 2, "memory_bytes": 8 * 2**30, "accelerators": [], "torch_cuda": None},
    "environment": {"OMP_NUM_THREADS": "1"},
}


def write_run(
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    windows: Sequence[tuple[int, float]],
    losses: Sequence[float] = (),
    valid: Sequence[tuple[int, float]] = (),
    profiled_steps: int = 0,
    profile: dict[str, float] | None = None,
    flops: float | None = None,
    share: float | None = None,
    finished: bool = True,
    environment: dict[str, Any] | None = None,
) -> Path:
    """A run whose timing windows are (steps, mean seconds), one after the other from step 1.

    losses: of the steps, cycled; flops: stated in summary.json; share: MFU of the first window, HFU twice it.
    """
    folder.mkdir(parents=True)
    steps = sum(n for n, _ in windows) + profiled_steps
    config = dataclasses.replace(_composed(tuple(overrides)), run_dir=str(folder))
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=steps))
    save_config(config, folder / "config.yaml")
    lines, step = [], 0
    for length, seconds in [*windows, *[(1, 9.0)] * profiled_steps]:
        for _ in range(length):
            step += 1
            loss = losses[(step - 1) % len(losses)] if losses else 5.0 - step / 100
            record: dict[str, Any] = {"kind": "train", "step": step, "loss": loss, "step_time_s": seconds}
            record |= {"window_steps": length, "mfu": None, "hfu": None}
            if share is not None:
                relative = windows[0][1] / seconds
                record |= {"mfu": share * relative, "hfu": 2 * share * relative}
            if step > steps - profiled_steps:
                record["profiled"] = True
            lines.append(json.dumps(record))
    lines += [json.dumps({"kind": "valid", "step": s, "loss": loss, "tokens": 7}) for s, loss in valid]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT | (environment or {})))
    if finished:
        summary = {"steps": steps} if flops is None else {"steps": steps, "flops_per_step": flops}
        (folder / "summary.json").write_text(json.dumps(summary))
    if profile is not None:
        rank = {"rank": 0, "step_s": sum(profile.values()), **profile}
        (folder / "profile").mkdir()
        (folder / "profile" / "time.json").write_text(json.dumps({"steps": [1, 2, 3], "ranks": [rank]}))
    return folder


@cache
def _composed(overrides: tuple[str, ...]) -> TrainConfig:
    given = {"model": "gpt2_tiny", "train.global_batch_size": "4"}
    given |= dict(override.split("=", 1) for override in overrides)
    config = compose([f"{key}={value}" for key, value in given.items()])
    launch = dataclasses.replace(config.launch, device="cpu", threads=1)
    return dataclasses.replace(config, dp=config.dp or 1, launch=launch)


def write_study(folder: Path, points: Sequence[dict[str, Any]], **about: Any) -> Path:
    """study.json over run directories that are there already; a point's runs are (dir, status, message)."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for point in points:
        runs = []
        for directory, status, message in point["runs"]:
            config = folder / directory / "config.yaml"
            wanted = config_hash(load_config(config)) if config.is_file() else "0" * 64
            command = ["mlm-train", *point.get("overrides", []), f"run_dir={directory}"]
            state = {"dir": directory, "hash": wanted, "status": status, "message": message}
            runs.append({**state, "exit_code": None, "command": command})
        written.append({"series": None, "published_key": None, "overrides": [], **point, "runs": runs})
    content = {
        "format": 1,
        "name": "study",
        "title": "A study",
        "command": ["mlm-train", "-m", "study=study"],
    }
    content |= {"scaling": None, "baseline": None, "published": None, "warmup_steps": 5, "repeats": 1}
    (folder / "study.json").write_text(json.dumps(content | about | {"points": written}))
    return folder

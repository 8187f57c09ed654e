"""One run directory as a report sees it: read with patience, since runs are killed and disks fill up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlm.config.schema import TrainConfig
from mlm.config.store import load_config
from mlm.errors import ConfigError, DataError
from mlm.plan.flops import model_flops_per_step, outputs_per_sample
from mlm.plan.parameters import count_parameters
from mlm.report.breakdown import Breakdown, read_breakdown
from mlm.report.efficiency import Work
from mlm.report.history import Record, unbroken
from mlm.report.windows import Window, windows


@dataclass(frozen=True)
class Run:
    """What could be read of a run directory that has at least a configuration and metrics."""

    folder: Path
    config: TrainConfig
    work: Work
    train: list[Record]
    """Steps in the order they were written; each has a whole step and a loss that is a number."""
    valid: list[Record]
    spikes: list[Record]
    """Steps whose loss had jumped, each told once."""
    summary: Mapping[str, Any] | None
    """None until the run has finished."""
    environment: Mapping[str, Any]
    """Empty when environment.json is not there."""
    breakdown: Breakdown | None
    """Where the time of a step went; None when the run was not profiled."""
    flaws: list[str] = field(default_factory=list)
    """What is missing or damaged, each in a few words."""

    @property
    def last_step(self) -> int:
        return int(self.train[-1]["step"]) if self.train else 0

    @property
    def is_finished(self) -> bool:
        return self.summary is not None

    @property
    def command(self) -> list[str]:
        given = self.environment.get("command")
        return [str(word) for word in given] if isinstance(given, list) else []

    @property
    def device(self) -> str:
        """What each process computed on, as a person would say it."""
        machine = self.environment.get("machine")
        machine = machine if isinstance(machine, dict) else {}
        names = sorted({str(a.get("name")) for a in machine.get("accelerators") or [] if isinstance(a, dict)})
        if self.config.launch.device != "cpu" and names:
            return " / ".join(names)
        threads = self.config.launch.threads
        return "CPU" if threads is None else f"CPU, {threads} thread{'s' if threads != 1 else ''} a process"

    def windows(self, warmup_steps: int) -> list[Window]:
        """The timing windows after the warm-up."""
        return [window for window in self._windows if window.first_step > warmup_steps]

    @cached_property
    def _windows(self) -> list[Window]:
        return windows(self.train, warmup_steps=0)


def read_run(folder: Path) -> Run:
    """Read a run directory; what is damaged but not needed becomes a flaw.

    Raises DataError, whose message is the reason, when the configuration or every step is missing.
    """
    flaws: list[str] = []
    records = unbroken(_read_metrics(folder / "metrics.jsonl", flaws))
    if not (folder / "config.yaml").exists():
        raise DataError("config.yaml is missing")
    try:
        config = load_config(folder / "config.yaml")
    except ConfigError as error:
        first, others = error.problems[0], len(error.problems) - 1
        more = f", and {others} more" if others else ""
        inside = first.where.removesuffix(f" in {folder / 'config.yaml'}")
        where = "config.yaml" if inside == str(folder / "config.yaml") else f"config.yaml: {inside}"
        raise DataError(f"{where} {first.wrong}{more}") from None
    summary = _read_object(folder / "summary.json", flaws, missing=None)
    train = [r for r in records if r.get("kind") == "train"]
    if not train:
        raise DataError("; ".join([*flaws, "no training step is recorded"]))
    if summary is None:
        flaws.append(
            f"unfinished: step {train[-1]['step']:,} of {config.train.steps:,} was the last one written"
        )
    return Run(
        folder=folder,
        config=config,
        work=_work(config, _stated_flops(summary, flaws), _tokens_a_step(config, train)),
        train=train,
        valid=[r for r in records if r.get("kind") == "valid"],
        spikes=[r for r in records if r.get("kind") == "spike"],
        summary=summary,
        environment=_read_object(folder / "environment.json", flaws, missing="is missing") or {},
        breakdown=read_breakdown(folder / "profile" / "time.json", flaws),
        flaws=flaws,
    )


def looks_like_run(folder: Path) -> bool:
    """Whether a run was once begun there, whatever is left of it."""
    return any((folder / name).is_file() for name in ("config.yaml", "metrics.jsonl", "environment.json"))


def _stated_flops(summary: Mapping[str, Any] | None, flaws: list[str]) -> float | None:
    """Model FLOPs of a step as the run itself stated them; None when it did not."""
    stated = (summary or {}).get("flops_per_step")
    if stated is None:
        return None
    if isinstance(stated, (int, float)) and 0 < stated < math.inf:
        return float(stated)
    flaws.append(f"summary.json: flops_per_step={stated} is no number of FLOPs")
    return None


def _tokens_a_step(config: TrainConfig, train: Sequence[Record]) -> int:
    """Of the whole job; of a fine-tuning, whose sequences differ in length, what its steps have recorded."""
    consumed = train[-1].get("consumed_tokens") if train else None
    if config.finetune.task is not None and isinstance(consumed, int) and consumed > 0:
        return round(consumed / train[-1]["step"])
    return config.train.global_batch_size * config.model.seq_length


def _work(config: TrainConfig, stated_flops: float | None, tokens: int) -> Work:
    """By the run's own FLOPs where it has stated them, so that its figures agree with its log."""
    batch = config.train.global_batch_size
    try:
        flops = model_flops_per_step(config.model, batch, outputs_per_sample(config))
        return Work(
            processes=config.tp * config.pp * (config.dp or 1),
            flops=flops if stated_flops is None else stated_flops,
            parameters=count_parameters(config.model, task=config.finetune.task).total,
            samples=batch,
            tokens=tokens,
        )
    except (ValueError, ZeroDivisionError) as error:
        raise DataError(f"config.yaml describes no model that can be ({error})") from None


def _read_metrics(path: Path, flaws: list[str]) -> list[Record]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise DataError(f"{path.name} is missing") from None
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror})") from None
    records, broken = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = _record(line)
        if record is not None:
            records.append(record)
        elif number == len(lines):
            # Lines end with a newline, so the rest behind the last one was being written when the run died.
            flaws.append(f"{path.name}: line {number:,} is cut off and left out")
        else:
            broken.append(number)
    if broken:
        more = f" and {len(broken) - 1:,} more" if len(broken) > 1 else ""
        flaws.append(f"{path.name}: line {broken[0]:,}{more} cannot be read and is left out")
    return records


def _record(line: bytes) -> Record | None:
    """The record of a line; None when it is not one that a run writes."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        return None
    if record.get("kind") in ("train", "valid") and not isinstance(record.get("loss"), (int, float)):
        return None
    return record


def _read_object(path: Path, flaws: list[str], *, missing: str | None) -> dict[str, Any] | None:
    """A JSON object, or None and a flaw; missing: the flaw when there is no file, None for none."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        if missing is not None:
            flaws.append(f"{path.name} {missing}")
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        flaws.append(f"{path.name} cannot be read ({reason})")
        return None
    if not isinstance(content, dict):
        flaws.append(f"{path.name} holds no JSON object")
        return None
    return content

"""`launch=dry_run` of a sweep: all points in one table, and their commands. Starts and writes nothing."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from mlm.launch.fit import gib
from mlm.launch.machine import Machine
from mlm.launch.plan_text import USUAL_DEVICES, plan_console
from mlm.launch.sweep.check import CheckedPoint
from mlm.launch.sweep.folder import shown_path
from mlm.launch.sweep.text import states
from mlm.plan.flops import model_flops_per_step, outputs_per_sample
from mlm.plan.memory import ACTIVATIONS_NOTE, static_memory
from mlm.plan.parameters import count_parameters
from mlm.studies.record import PENDING, Study


def show_sweep(study: Study, points: Sequence[CheckedPoint], machine: Machine) -> None:
    """Print what would run, point by point, and what this machine has against it."""
    console = plan_console()
    console.print("mlm-train -m launch=dry_run: nothing is started, nothing is written")
    repeats = f", each run {study.repeats} times" if study.repeats > 1 else ""
    console.print(f"\n{study.title}", style="bold")
    console.print(f" {len(points)} points{repeats}, in {shown_path(study.folder)}", soft_wrap=True)
    devices = points[0].config.launch.devices_per_node or len(machine.accelerators) or USUAL_DEVICES
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("point", overflow="fold")
    numbers = ("processes", f"nodes of {devices}", "parameters", "of a rank", "memory of a rank", "batch")
    for name in (*numbers, "FLOPs a step"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("so far", overflow="fold")
    for point, entry in zip(points, study.points, strict=True):
        done = "–" if all(run.status == PENDING for run in entry.runs) else states(entry)
        table.add_row(*map(Text, [*_cells(point, devices), done]))
    console.print(table)
    console.print(f" memory: weights, gradients and optimizer state; {ACTIVATIONS_NOTE}", soft_wrap=True)
    if study.baseline is not None:
        console.print(f" baseline: {study.baseline}", soft_wrap=True)
    others = ", ".join(f"r{number}" for number in range(2, study.repeats + 1))
    again = f" (repeats write to {others})" if others else ""
    console.print(f"\ncommands{again}", style="bold")
    for entry in study.points:
        missing = next((run for run in entry.runs if not study.is_seen_to(run)), None)
        if missing is not None:
            # Not in a table: a wrapped command cannot be copied.
            console.print(f" {shlex.join(missing.command)}", soft_wrap=True)
    refused: dict[str, list[str]] = {}
    for point in points:
        for problem in point.machine_problems:
            refused.setdefault(str(problem), []).append(point.label)
    if refused:
        console.print("\nwhat this machine would refuse", style="bold")
        for what, labels in refused.items():
            console.print(f" {'; '.join(labels)}: {what}", soft_wrap=True)


def _cells(point: CheckedPoint, devices: int) -> list[str]:
    config, processes = point.config, point.launch.processes
    task = config.finetune.task
    batch = config.train.global_batch_size
    return [
        point.label + (" (baseline)" if point.swept.is_baseline else ""),
        f"{processes:,}",
        f"{math.ceil(processes / devices):,}",
        f"{count_parameters(config.model, task=task).total:,}",
        f"{count_parameters(config.model, config.tp, task).total:,}",
        gib(static_memory(config.model, config.tp, task).total_bytes),
        f"{batch:,}",
        f"{model_flops_per_step(config.model, batch, outputs_per_sample(config)):.3e}",
    ]

"""What the plans of all commands have in common: tables, processes, commands to type, this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlm.errors import Problem
from mlm.launch.fit import gib
from mlm.launch.machine import Machine
from mlm.launch.preflight import Launch, Layout
from mlm.plan.groups import dp_groups, tp_groups

USUAL_DEVICES = 8
"""Devices of a machine assumed for a command over several, when this machine cannot tell."""
_SHOWN_GROUPS, _SHOWN_RANKS, _SHOWN_SHORT = 3, 8, 3


def plan_console() -> Console:
    """Into a file or a pipe, lines are as long as they are; a terminal says how wide it is."""
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)


def print_table(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A titled table of names and values."""
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True, min_width=18)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))  # Text: rich would read [0 1] as a style
    console.print(f"\n{title}", style="bold")
    console.print(table)


def process_rows(config: Layout, launch: Launch, dp_does: str) -> list[tuple[str, str]]:
    """How many processes, and who shares what. dp_does: of the ranks of a dp group, as `hold ...`."""
    tp, pp, dp = config.tp, config.pp, launch.dp
    inferred = " (inferred)" if config.dp is None else ""
    return [
        ("how many", f"{tp * pp * dp} = tp {tp} x pp {pp} x dp {dp}{inferred}"),
        ("tp groups", _groups(tp_groups(tp, pp, dp), "share each layer")),
        ("dp groups", _groups(dp_groups(tp, pp, dp), dp_does)),
    ]


def _groups(groups: list[list[int]], what: str) -> str:
    many = len(groups) > _SHOWN_GROUPS
    shown = [_ranks(group, short=many or len(group) > _SHOWN_RANKS) for group in groups[:_SHOWN_GROUPS]]
    if many:
        shown += ["..."] * (len(groups) > _SHOWN_GROUPS + 1) + [_ranks(groups[-1], short=True)]
    noun = "group" if len(groups) == 1 else "groups"
    verb = f"that {what}" if len(groups[0]) > 1 else "of one rank, nothing to communicate"
    return f"{len(groups)} {noun} {verb}: {' '.join(shown)}"


def _ranks(group: list[int], *, short: bool) -> str:
    if not short or len(group) <= _SHOWN_SHORT:
        return f"[{' '.join(map(str, group))}]"
    return f"[{group[0]} {group[1]} ... {group[-1]}]"


def command_lines(
    command: str,
    module: str,
    worker_module: str,
    launch: Launch,
    machine: Machine,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    devices_per_node: int | None = None,
) -> list[str]:
    """What to type, and what that starts: on one machine when it is enough, else over several.

    devices_per_node: of the cluster in mind; None: as many as this machine has, or the usual number.
    """
    words = [word for word in overrides if word != "launch=dry_run" and not word.startswith("launch.mode=")]
    folders = [part for folder in config_dirs for part in ("--config-dir", str(folder))]
    ours = shlex.join([*folders, *words])
    worker = shlex.join(["python", "-m", worker_module, str(launch.run_dir / "config.yaml")])
    processes = launch.processes
    per_machine = devices_per_node or len(machine.accelerators) or USUAL_DEVICES
    lines = []
    if processes <= per_machine:
        lines += [
            f"{command} {ours}",
            f"  starts {processes} x {worker}",
            f"torchrun --nproc-per-node={processes} -m {module} {ours}",
            "  the same in workers of torchrun's",
        ]
    machines, rest = divmod(processes, per_machine)
    if machines > 1 and not rest:
        rendezvous = "--rdzv-backend=c10d --rdzv-id=JOB --rdzv-endpoint=FIRST_HOST:29400"
        nodes = f"--nnodes={machines} --nproc-per-node={per_machine}"
        lines += [
            f"torchrun {nodes} {rendezvous} -m {module} {ours}",
            f"  on each of {machines} machines with {per_machine} devices",
            f"srun --nodes={machines} --ntasks-per-node={per_machine} {command} {ours}",
            "  the same in the body of a Slurm job",
        ]
    elif processes > per_machine:
        lines.append(f"{processes} processes do not divide into machines of {per_machine} devices")
    if processes <= per_machine or not rest:
        own = [] if any(word.startswith("launch=") for word in words) else ["launch=slurm"]
        own += [] if any(word.startswith("dp=") for word in words) else [f"dp={launch.dp}"]
        if devices_per_node is None and "launch.device=cpu" in words:
            own.append(f"launch.devices_per_node={min(processes, per_machine)}")
        nodes = f"{max(1, machines)} node{'s' if machines > 1 else ''} of {min(processes, per_machine)}"
        lines += [
            f"{command} {ours} {shlex.join(own)}",
            f"  submits a Slurm job, or starts a step of one: {nodes} processes",
        ]
    return [line.rstrip() for line in lines]


def machine_rows(launch: Launch, machine: Machine, notes: Sequence[Problem]) -> list[tuple[str, str]]:
    """What this machine has, what stands against the plan here, and whether it could run."""
    names = sorted({a.name for a in machine.accelerators})
    devices = f"{len(machine.accelerators)} x {' / '.join(names)}" if names else "no accelerator"
    rows = [("has", f"{machine.cores} cores, {gib(machine.memory_bytes)} of memory available, {devices}")]
    rows += [("note", str(note)) for note in notes]
    rows += [("note", warning) for warning in launch.warnings]
    rows.append(("could it run here", "no, see the notes" if notes else f"yes, on {launch.device}"))
    return rows

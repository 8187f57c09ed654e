"""`launch=dry_run`: what would run, on any machine, in a moment. Starts and writes nothing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlm.config.schema import TrainConfig
from mlm.data.checks import QUICK_TEXT_BYTES
from mlm.data.indexed import IndexedDataset
from mlm.data.samples import samples_per_epoch
from mlm.data.split import cut, split_dataset
from mlm.data.text import is_text, read_text, text_path
from mlm.errors import Problem
from mlm.launch.fit import gib
from mlm.launch.machine import Machine
from mlm.launch.preflight import Launch
from mlm.plan.flops import MODEL_FLOPS_FORMULA, model_flops_per_step
from mlm.plan.groups import dp_groups, tp_groups
from mlm.plan.memory import ACTIVATIONS_NOTE, static_memory
from mlm.plan.parameters import count_parameters, count_real_parameters, padded_vocab_size

USUAL_DEVICES = 8
"""Devices of a machine assumed for a command over several, when this machine cannot tell."""
_SHOWN_GROUPS, _SHOWN_RANKS, _SHOWN_SHORT = 3, 8, 3


def show(
    config: TrainConfig,
    launch: Launch,
    machine: Machine,
    notes: Sequence[Problem],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
) -> None:
    """Print the plan. notes: what this machine has against it, which here forbids nothing."""
    # Into a file or a pipe, lines are as long as they are; a terminal says how wide it is.
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    console.print("mlm-train launch=dry_run: nothing is started, nothing is written")
    _table(console, "model", _model_rows(config))
    _table(console, "one rank", _rank_rows(config))
    _table(console, "processes", _process_rows(config, launch))
    _table(console, "a step", _step_rows(config, launch))
    _table(console, "the run", _run_rows(config, launch))
    console.print("\ncommands", style="bold")
    for line in _commands(launch, machine, overrides, config_dirs):
        # Not in a table: a wrapped command cannot be copied.
        console.print(f" {line}", soft_wrap=True)
    _table(console, "this machine", _machine_rows(launch, machine, notes))


def _table(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True, min_width=18)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))  # Text: rich would read [0 1] as a style
    console.print(f"\n{title}", style="bold")
    console.print(table)


def _model_rows(config: TrainConfig) -> list[tuple[str, str]]:
    model = config.model
    head = "tied" if model.tie_embeddings else "untied"
    return [
        (
            model.name,
            f"{model.num_layers} layers, hidden {model.hidden_size}, {model.num_heads} heads, "
            f"sequence {model.seq_length}, {head} output layer",
        ),
        (
            "parameters",
            f"{count_parameters(model).total:,} with the padded vocabulary of {padded_vocab_size(model):,}; "
            f"{count_real_parameters(model).total:,} with the {model.vocab_size:,} tokens that exist",
        ),
    ]


def _rank_rows(config: TrainConfig) -> list[tuple[str, str]]:
    memory = static_memory(config.model, config.tp)
    return [
        ("parameters", f"{count_parameters(config.model, config.tp).total:,} at tp={config.tp}"),
        ("weights", gib(memory.weights_bytes)),
        ("gradients", gib(memory.gradients_bytes)),
        ("optimizer state", gib(memory.optimizer_bytes)),
        ("together", f"{gib(memory.total_bytes)}; {ACTIVATIONS_NOTE}"),
    ]


def _process_rows(config: TrainConfig, launch: Launch) -> list[tuple[str, str]]:
    tp, pp, dp = config.tp, config.pp, launch.dp
    inferred = " (inferred)" if config.dp is None else ""
    return [
        ("how many", f"{tp * pp * dp} = tp {tp} x pp {pp} x dp {dp}{inferred}"),
        ("tp groups", _groups(tp_groups(tp, pp, dp), "share each layer")),
        ("dp groups", _groups(dp_groups(tp, pp, dp), "hold the same parameters")),
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


def _step_rows(config: TrainConfig, launch: Launch) -> list[tuple[str, str]]:
    train = config.train
    micro_batches = train.global_batch_size // (train.micro_batch_size * launch.dp)
    tokens = train.global_batch_size * config.model.seq_length
    flops = model_flops_per_step(config.model, train.global_batch_size)
    return [
        (
            "batch",
            f"{train.global_batch_size} samples = dp {launch.dp} x {micro_batches} micro "
            f"batch{'es' if micro_batches != 1 else ''} x {train.micro_batch_size} samples",
        ),
        ("tokens", f"{tokens:,}"),
        ("model FLOPs", f"{_flop(flops)} = {MODEL_FLOPS_FORMULA}"),
    ]


def _flop(flops: float) -> str:
    for unit in ("", "k", "M", "G", "T", "P", "E"):
        if flops < 1000 or unit == "E":
            return f"{flops:.4g} {unit}FLOP"
        flops /= 1000
    raise AssertionError("the loop returns at its last unit")


def _run_rows(config: TrainConfig, launch: Launch) -> list[tuple[str, str]]:
    samples = config.train.steps * config.train.global_batch_size
    files = "config.yaml overrides.txt environment.json data.json metrics.jsonl train.log summary.json"
    return [
        ("steps", f"{config.train.steps:,}, {samples * config.model.seq_length:,} tokens"),
        ("data", f"{config.data.name}: {config.data.path or 'the text shipped with mlm'}"),
        ("epochs", _epochs(config, samples)),
        ("tokenizer", config.tokenizer.kind),
        ("precision", config.precision.name if config.precision.name != "auto" else _auto_precision(launch)),
        ("writes", f"{launch.run_dir}: {files}{' checkpoints/' if config.train.save else ''}"),
    ]


def _auto_precision(launch: Launch) -> str:
    return f"{launch.precision} on {launch.device} here (auto: bf16 where the accelerator has it, else fp32)"


def _epochs(config: TrainConfig, samples: int) -> str:
    seq_length = config.model.seq_length
    if not is_text(config.data.path):
        assert config.data.path is not None, "no path is the embedded text"
        tokens = split_dataset(IndexedDataset(config.data.path), config.data.split)[0].tokens
    else:
        path = text_path(config.data.path)
        if path.stat().st_size > QUICK_TEXT_BYTES:
            return "known once the text is encoded"
        text = read_text(path)
        training = text[: cut(len(text), config.data.split)[0]]
        match config.tokenizer.kind:
            case "char":
                tokens = len(training)
            case "byte":
                tokens = len(training.encode())
            case _:
                return f"known once the text is encoded: {len(training):,} characters for training"
    each = samples_per_epoch(tokens, seq_length)
    return f"{samples / each:,.2f}, each {each:,} samples of {tokens:,} training tokens"


def _commands(
    launch: Launch, machine: Machine, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> list[str]:
    """What to type, and what that starts: on one machine when it is enough, else over several."""
    words = [word for word in overrides if word != "launch=dry_run" and not word.startswith("launch.mode=")]
    folders = [part for folder in config_dirs for part in ("--config-dir", str(folder))]
    ours = shlex.join([*folders, *words])
    worker = shlex.join(["python", "-m", "mlm.train.worker", str(launch.run_dir / "config.yaml")])
    processes, per_machine = launch.processes, len(machine.accelerators) or USUAL_DEVICES
    lines = []
    if processes <= per_machine:
        lines += [
            f"mlm-train {ours}",
            f"  starts {processes} x {worker}",
            f"torchrun --nproc-per-node={processes} -m mlm.cli.train {ours}",
            "  the same in workers of torchrun's",
        ]
    machines, rest = divmod(processes, per_machine)
    if machines > 1 and not rest:
        rendezvous = "--rdzv-backend=c10d --rdzv-id=JOB --rdzv-endpoint=FIRST_HOST:29400"
        nodes = f"--nnodes={machines} --nproc-per-node={per_machine}"
        lines += [
            f"torchrun {nodes} {rendezvous} -m mlm.cli.train {ours}",
            f"  on each of {machines} machines with {per_machine} devices",
            f"srun --nodes={machines} --ntasks-per-node={per_machine} mlm-train {ours}",
            "  the same under Slurm",
        ]
    elif processes > per_machine:
        lines.append(f"{processes} processes do not divide into machines of {per_machine} devices")
    return [line.rstrip() for line in lines]


def _machine_rows(launch: Launch, machine: Machine, notes: Sequence[Problem]) -> list[tuple[str, str]]:
    names = sorted({a.name for a in machine.accelerators})
    devices = f"{len(machine.accelerators)} x {' / '.join(names)}" if names else "no accelerator"
    rows = [("has", f"{machine.cores} cores, {gib(machine.memory_bytes)} of memory available, {devices}")]
    rows += [("note", str(note)) for note in notes]
    rows += [("note", warning) for warning in launch.warnings]
    rows.append(("could it run here", "no, see the notes" if notes else f"yes, on {launch.device}"))
    return rows

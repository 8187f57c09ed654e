"""`launch=dry_run`: what would run, on any machine, in a moment. Starts and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlm.config.schema import TrainConfig
from mlm.data.blend import Blend
from mlm.data.checks import QUICK_TEXT_BYTES
from mlm.data.indexed import IndexedDataset
from mlm.data.samples import samples_per_epoch
from mlm.data.sources import is_text_run, named_datasets
from mlm.data.split import cut, split_dataset
from mlm.data.text import read_text, text_path
from mlm.errors import Problem
from mlm.launch import finetuning
from mlm.launch.fit import gib
from mlm.launch.machine import Machine
from mlm.launch.plan_text import (
    command_lines,
    machine_rows,
    plan_console,
    print_table,
    process_rows,
)
from mlm.launch.preflight import Launch
from mlm.launch.resume import outlook
from mlm.plan.flops import flops_formula, model_flops_per_step, outputs_per_sample
from mlm.plan.memory import ACTIVATIONS_NOTE, static_memory
from mlm.plan.parameters import count_parameters, count_real_parameters, padded_vocab_size


def show(
    config: TrainConfig,
    launch: Launch,
    machine: Machine,
    notes: Sequence[Problem],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
) -> None:
    """Print the plan. notes: what this machine has against it, which here forbids nothing."""
    console = plan_console()
    console.print("mlm-train launch=dry_run: nothing is started, nothing is written")
    print_table(console, "model", _model_rows(config))
    print_table(console, "one rank", _rank_rows(config))
    print_table(console, "processes", process_rows(config, launch, "hold the same parameters"))
    print_table(console, "a step", _step_rows(config, launch))
    print_table(console, "the run", _run_rows(config, launch))
    console.print("\ncommands", style="bold")
    lines = command_lines(
        "mlm-train",
        "mlm.cli.train",
        "mlm.train.worker",
        launch,
        machine,
        overrides,
        config_dirs,
        config.launch.devices_per_node,
    )
    for line in lines:
        # Not in a table: a wrapped command cannot be copied.
        console.print(f" {line}", soft_wrap=True)
    print_table(console, "this machine", machine_rows(launch, machine, notes))


def _model_rows(config: TrainConfig) -> list[tuple[str, str]]:
    model, task = config.model, config.finetune.task
    padded, real = count_parameters(model, task=task).total, count_real_parameters(model, task).total
    head = (
        f"{'tied' if model.tie_embeddings else 'untied'} output layer"
        if task is None
        else f"a head for {task}"
    )
    return [
        (
            model.name,
            f"{model.num_layers} layers, hidden {model.hidden_size}, {model.num_heads} heads, "
            f"sequence {model.seq_length}, {head}",
        ),
        (
            "parameters",
            f"{padded:,} with the padded vocabulary of {padded_vocab_size(model):,}; "
            f"{real:,} with the {model.vocab_size:,} tokens that exist",
        ),
    ]


def _rank_rows(config: TrainConfig) -> list[tuple[str, str]]:
    task = config.finetune.task
    memory = static_memory(config.model, config.tp, task)
    return [
        ("parameters", f"{count_parameters(config.model, config.tp, task).total:,} at tp={config.tp}"),
        ("weights", gib(memory.weights_bytes)),
        ("gradients", gib(memory.gradients_bytes)),
        ("optimizer state", gib(memory.optimizer_bytes)),
        ("together", f"{gib(memory.total_bytes)}; {ACTIVATIONS_NOTE}"),
    ]


def _step_rows(config: TrainConfig, launch: Launch) -> list[tuple[str, str]]:
    train = config.train
    micro_batches = train.global_batch_size // (train.micro_batch_size * launch.dp)
    sequences, length = train.global_batch_size, config.model.seq_length
    if config.finetune.task is not None:
        sequences, length = finetuning.sequences(config)
    tokens = sequences * length
    shape = replace(config.model, seq_length=length)
    flops = model_flops_per_step(shape, sequences, outputs_per_sample(config))
    return [
        (
            "batch",
            f"{train.global_batch_size} samples = dp {launch.dp} x {micro_batches} micro "
            f"batch{'es' if micro_batches != 1 else ''} x {train.micro_batch_size} samples",
        ),
        ("tokens", f"{tokens:,}"),
        ("model FLOPs", f"{_flop(flops)} = {flops_formula(config)}"),
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
    folders = (" checkpoints/" if config.train.save or config.checkpoint.interval else "") + (
        " profile/" if config.profile else ""
    )
    if config.finetune.task is not None:
        data = finetuning.rows(config)
    else:
        data = [
            ("steps", f"{config.train.steps:,}, {samples * config.model.seq_length:,} tokens"),
            ("data", f"{config.data.name}: {_data(config)}"),
            *_epoch_rows(config, samples),
        ]
    return [
        *data,
        ("tokenizer", config.tokenizer.kind),
        ("precision", config.precision.name if config.precision.name != "auto" else _auto_precision(launch)),
        ("begins", outlook(config, launch.run_dir)),
        ("writes", f"{launch.run_dir}: {files}{folders}"),
    ]


def _auto_precision(launch: Launch) -> str:
    return f"{launch.precision} on {launch.device} here (auto: bf16, else fp16 on accelerators, fp32 on CPUs)"


def _data(config: TrainConfig) -> str:
    if config.data.blend is not None:
        return f"{len(config.data.blend)} datasets by weight"
    return config.data.path or "the text shipped with mlm"


def _epoch_rows(config: TrainConfig, samples: int) -> list[tuple[str, str]]:
    if is_text_run(config.data):
        return [("epochs", _epochs_of_text(config, samples))]
    named = named_datasets(config.data)
    blend = Blend([dataset.weight for dataset in named])
    rows = []
    for dataset, weight, taken in zip(named, blend.weights, blend.counts(samples), strict=True):
        tokens = split_dataset(IndexedDataset(dataset.prefix), config.data.split)[0].tokens
        if not weight:
            rows.append((f"epochs, {dataset.name}", "weight 0: not read"))
            continue
        epochs = _epochs(config, tokens, taken)
        if config.data.blend is None:
            rows.append(("epochs", epochs))
        else:
            rows.append((f"epochs, {dataset.name}", f"{epochs}; weight {weight:.4g}, {taken:,} samples"))
    return rows


def _epochs(config: TrainConfig, tokens: int, samples: int) -> str:
    if config.objective.name == "masked_lm":
        return f"known once the sentences of {tokens:,} training tokens are paired"
    each = samples_per_epoch(tokens, config.model.seq_length)
    return f"{samples / each:,.2f}, each {each:,} samples of {tokens:,} training tokens"


def _epochs_of_text(config: TrainConfig, samples: int) -> str:
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
    return _epochs(config, tokens, samples)

"""mlm-eval as the launcher sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rich.console import Console

from mlm.config.command import EVAL as SPEC
from mlm.config.schema import EvalConfig
from mlm.errors import ConfigError, Problem
from mlm.eval import checks, labelled
from mlm.eval.tasks import TASKS
from mlm.finetune.tasks import TASKS as LABELLED
from mlm.launch import rundir
from mlm.launch.checkpoint_checks import sentences
from mlm.launch.command import Command, Say
from mlm.launch.fit import gib, weight_problems
from mlm.launch.machine import Machine
from mlm.launch.plan_text import (
    command_lines,
    machine_rows,
    plan_console,
    print_table,
    process_rows,
)
from mlm.launch.preflight import Launch, place
from mlm.plan.parameters import count_parameters

_WORKER = "mlm.eval.worker"
_FP32_BYTES = 4
_MEMORY_HINT = "try a smaller batch_tokens, or a larger tp"


def _preflight(
    config: EvalConfig, machine: Machine, environment: Mapping[str, str]
) -> tuple[Launch, list[Problem]]:
    try:
        checkpoint, trained = checks.read_checkpoint(config.checkpoint or "")
    except ConfigError:
        checkpoint, trained = None, None  # what is wrong with it is said by checks.problems
    if config.out is not None:
        out = Path(config.out)
    else:
        run_dir = Path.cwd() if checkpoint is None else checkpoint.run_dir
        out = rundir.free(run_dir / "eval" / f"{datetime.now():%Y%m%d-%H%M%S}")
    launch, problems = place(config, machine, environment, out, "evaluating")
    # The nodes of a Slurm job are not here; its tasks look at their own machine.
    if trained is not None and launch.slurm is None:
        problems += weight_problems(
            trained.model, max(1, config.tp), launch.device, launch.local_processes, machine
        )
    if config.out is not None or checkpoint is not None:
        problems += rundir.problems(out, "out", launch.job_id)
    return launch, problems


def _prepare(config: EvalConfig, launch: Launch, say: Say) -> tuple[Path, EvalConfig]:
    """Raises ConfigError when the checkpoint is damaged or the directory can no longer be made."""
    checkpoint, _ = checks.read_checkpoint(config.checkpoint or "")
    damaged = sentences("checkpoint", checkpoint, contents=True)
    if labelled.is_labelled(config):
        asked = labelled.members(config)
        for member in asked[1:]:
            damaged += sentences("ensemble", member.checkpoint, contents=True)
        paths = {config.tasks[0]: str(labelled.examples_path(config, asked[0]))}
        config = replace(config, ensemble=[str(member.checkpoint.directory) for member in asked[1:]])
    else:
        paths = checks.settled_paths(config.tasks, config.task_paths)
    if damaged:
        raise ConfigError(damaged)
    out = rundir.create(launch.run_dir, given=config.out is not None, key="out", job_id=launch.job_id)
    return out, replace(
        config,
        checkpoint=str(checkpoint.directory),
        task_paths=paths,
        precision=replace(config.precision, name=launch.precision),
        launch=replace(config.launch, device=launch.device, threads=launch.threads),
        dp=launch.dp,
        out=str(out),
    )


def _show(
    config: EvalConfig,
    launch: Launch,
    machine: Machine,
    notes: Sequence[Problem],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
) -> None:
    checkpoint, trained = checks.read_checkpoint(config.checkpoint or "")
    model = trained.model
    console = plan_console()
    console.print("mlm-eval launch=dry_run: nothing is started, nothing is written")
    print_table(
        console,
        "checkpoint",
        [
            ("directory", str(checkpoint.directory)),
            (
                "model",
                f"{model.name}: {model.num_layers} layers, hidden {model.hidden_size}, "
                f"{model.num_heads} heads, context {model.seq_length:,}",
            ),
            ("trained at", f"tp={trained.tp} dp={trained.dp}, step {checkpoint.step:,}"),
            (
                "weights",
                f"{gib(_FP32_BYTES * count_parameters(model, config.tp).total)} a rank at tp={config.tp}",
            ),
        ],
    )
    _show_tasks(console, config)
    print_table(console, "processes", process_rows(config, launch, "share out the windows"))
    precision = f"{launch.precision} on {launch.device}"
    limit = "everything" if config.limit is None else f"limited to {config.limit:,} a task"
    rows = [
        ("precision", precision),
        ("how much", limit),
        ("writes", f"{launch.run_dir}: eval.json eval.log"),
    ]
    print_table(console, "the evaluation", rows)
    console.print("\ncommands", style="bold")
    per_node = config.launch.devices_per_node
    lines = command_lines(
        "mlm-eval", "mlm.cli.eval", _WORKER, launch, machine, overrides, config_dirs, per_node
    )
    for line in lines:
        console.print(f" {line}", soft_wrap=True)
    print_table(console, "this machine", machine_rows(launch, machine, notes))


def _show_tasks(console: Console, config: EvalConfig) -> None:
    rows = []
    if labelled.is_labelled(config):
        (name,), asked = config.tasks, labelled.members(config)
        rows = [(name, LABELLED[name].summary), ("", str(labelled.examples_path(config, asked[0])))]
        rows += [("ensemble with", str(member.checkpoint.directory)) for member in asked[1:]]
        print_table(console, "tasks", rows)
        return
    for name in config.tasks:
        rows.append((name, TASKS[name].summary))
        rows += [("", str(path)) for path in checks.task_files(name, config.task_paths).values()]
    print_table(console, "tasks", rows)


EVAL = Command(
    spec=SPEC,
    module="mlm.cli.eval",
    worker=_WORKER,
    preflight=_preflight,
    file_problems=checks.problems,
    show=_show,
    prepare=_prepare,
    memory_hint=_MEMORY_HINT,
    folder_key="out",
    job_name=lambda config: "mlm-eval",
    a_slip_misleads=False,
)

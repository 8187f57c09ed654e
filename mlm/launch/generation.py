"""mlm-generate as the launcher sees it."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from mlm.config.command import GENERATE as SPEC
from mlm.config.schema import GenerateConfig
from mlm.errors import ConfigError, MlmError, Problem
from mlm.eval.checks import read_checkpoint
from mlm.files import write_whole
from mlm.generate import checks
from mlm.generate.prompts import read_prompts
from mlm.launch import rundir
from mlm.launch.checkpoint_checks import sentences
from mlm.launch.command import Command, Say
from mlm.launch.fit import gib, weight_problems
from mlm.launch.machine import Machine
from mlm.launch.plan_text import command_lines, machine_rows, plan_console, print_table, process_rows
from mlm.launch.preflight import Launch, place
from mlm.plan.memory import cache_bytes
from mlm.plan.parameters import count_parameters

PROMPTS = "prompts.json"
"""In the job's directory: the prompts as the launcher read them, once."""
_WORKER = "mlm.generate.worker"
_FP32_BYTES = 4


def _preflight(
    config: GenerateConfig, machine: Machine, environment: Mapping[str, str]
) -> tuple[Launch, list[Problem]]:
    scratch = Path(tempfile.gettempdir()) / f"mlm_generate_{secrets.token_hex(6)}"
    launch, problems = place(config, machine, environment, scratch, "generating")
    if config.interactive and not sys.stdin.isatty():
        wrong = "asks in a terminal, and standard input is none"
        problems.append(Problem("interactive=true", wrong, "use prompts=/dev/stdin for a pipe"))
    try:
        checkpoint, trained = read_checkpoint(config.checkpoint or "")
    except ConfigError:
        return launch, problems  # what is wrong with it is said by checks.problems
    if launch.step is not None and launch.processes > launch.local_processes:
        # Workers on other machines read it too, as they read the checkpoint.
        launch = replace(launch, run_dir=checkpoint.run_dir / "generate" / scratch.name)
        problems += rundir.problems(launch.run_dir, "run_dir", launch.job_id)
    problems += weight_problems(
        trained.model,
        max(1, config.tp),
        launch.device,
        launch.local_processes,
        machine,
        _cache_bytes(config, launch),
    )
    return launch, problems


def _cache_bytes(config: GenerateConfig, launch: Launch) -> int:
    """Of a rank; 0 where what decides it is refused elsewhere."""
    try:
        _, trained = read_checkpoint(config.checkpoint or "")
        texts, tokens = checks.longest_text(config)
    except MlmError:
        return 0
    itemsize = _FP32_BYTES if launch.precision == "fp32" else 2
    rows = min(max(1, config.batch_size), texts)
    size = cache_bytes(trained.model, max(1, config.tp), rows=rows, tokens=tokens, itemsize=itemsize)
    return size if config.cache else 0


def _prepare(config: GenerateConfig, launch: Launch, say: Say) -> tuple[Path, GenerateConfig]:
    """Raises ConfigError when the checkpoint is damaged or the directory cannot be made."""
    checkpoint, _ = read_checkpoint(config.checkpoint or "")
    damaged = sentences("checkpoint", checkpoint, contents=True)
    if damaged:
        raise ConfigError(damaged)
    folder = rundir.create(launch.run_dir, given=False)
    prompts = [asdict(prompt) for prompt in read_prompts(config)]
    write_whole(folder / PROMPTS, json.dumps(prompts))
    return folder, replace(
        config,
        checkpoint=str(checkpoint.directory),
        precision=replace(config.precision, name=launch.precision),
        launch=replace(config.launch, device=launch.device, threads=launch.threads),
    )


def _show(
    config: GenerateConfig,
    launch: Launch,
    machine: Machine,
    notes: Sequence[Problem],
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
) -> None:
    checkpoint, trained = read_checkpoint(config.checkpoint or "")
    model = trained.model
    console = plan_console()
    console.print("mlm-generate launch=dry_run: nothing is started, nothing is written")
    shape = f"{model.num_layers} layers, hidden {model.hidden_size}, {model.num_heads} heads"
    weights = _FP32_BYTES * count_parameters(model, config.tp).total
    rows = [
        ("directory", str(checkpoint.directory)),
        ("model", f"{model.name}: {shape}, context {model.seq_length:,}"),
        ("trained at", f"tp={trained.tp} dp={trained.dp}, step {checkpoint.step:,}"),
        ("weights", f"{gib(weights)} a rank at tp={config.tp}"),
    ]
    if config.cache:
        rows.append(("keys and values", f"{gib(_cache_bytes(config, launch))} a rank"))
    print_table(console, "checkpoint", rows)
    print_table(console, "texts", _text_rows(config, launch))
    print_table(console, "processes", process_rows(config, launch, "hold copies"))
    console.print("\ncommands", style="bold")
    lines = command_lines(
        "mlm-generate", "mlm.cli.generate", _WORKER, launch, machine, overrides, config_dirs
    )
    for line in (line for line in lines if "Slurm" not in line and "launch=slurm" not in line):
        console.print(f" {line}", soft_wrap=True)
    print_table(console, "this machine", machine_rows(launch, machine, notes))


def _text_rows(config: GenerateConfig, launch: Launch) -> list[tuple[str, str]]:
    count = len(read_prompts(config))
    prompts = "those typed in the terminal" if config.interactive else f"{count:,}"
    if config.temperature == 0:
        how = "the likeliest token each time"
    else:
        how = f"temperature {config.temperature:g}"
        how += "" if config.top_k is None else f", the {config.top_k:,} likeliest"
        how += "" if config.top_p is None else f", top_p {config.top_p:g}"
        how += f", seed {config.seed}"
    to = "standard output" if config.out is None else config.out
    return [
        ("prompts", prompts),
        ("of each", f"{config.samples:,} of up to {config.max_new_tokens:,} new tokens"),
        ("drawn by", how),
        ("at once", f"{config.batch_size:,}, {launch.precision} on {launch.device}"),
        ("written to", to),
    ]


def _job_name(config: GenerateConfig) -> str:
    return "mlm-generate"


GENERATE = Command(
    spec=SPEC,
    module="mlm.cli.generate",
    worker=_WORKER,
    preflight=_preflight,
    file_problems=checks.problems,
    show=_show,
    prepare=_prepare,
    memory_hint="try a smaller batch_size, or a larger tp",
    folder_key="out",
    job_name=_job_name,
    a_slip_misleads=False,
    is_scratch=True,
)

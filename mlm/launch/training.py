"""mlm-train as the launcher sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mlm.config.command import TRAIN as SPEC
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.data.checks import problems as data_problems
from mlm.errors import Problem
from mlm.eval.checks import settled_paths, task_problems
from mlm.launch import preflight, rundir
from mlm.launch.command import Command, Say
from mlm.launch.dry_run import show
from mlm.launch.machine import Machine
from mlm.launch.preflight import Launch
from mlm.launch.verdict import MEMORY_HINT


def _preflight(
    config: TrainConfig, machine: Machine, environment: Mapping[str, str]
) -> tuple[Launch, list[Problem]]:
    return preflight.preflight(config, machine, environment, cwd=Path.cwd(), now=datetime.now())


def _file_problems(config: TrainConfig) -> list[Problem]:
    model, evaluation = config.model, config.eval
    found = data_problems(config.data, config.tokenizer, model.vocab_size, model.seq_length)
    return found + task_problems(evaluation.tasks, evaluation.task_paths, prefix="eval.")


def _prepare(config: TrainConfig, launch: Launch, say: Say) -> tuple[Path, TrainConfig]:
    """Raises ConfigError or DataError."""
    from mlm.data.prepare import prepare_data
    from mlm.data.tokenizers import keep_tokenizer

    model, evaluation = config.model, config.eval
    # Found once, so that every worker on every machine reads the same files.
    paths = settled_paths(evaluation.tasks, evaluation.task_paths)
    config = replace(config, eval=replace(evaluation, task_paths=paths))
    data = prepare_data(config.data, config.tokenizer, model.vocab_size, model.seq_length, say)
    run_dir = rundir.create(launch.run_dir, given=config.run_dir is not None, job_id=launch.job_id)
    data = replace(data, tokenizer=keep_tokenizer(data.tokenizer, run_dir))
    (run_dir / "data.json").write_text(data.to_json())
    return run_dir, resolved(
        config,
        device=launch.device,
        processes=launch.processes,
        threads=launch.threads,
        precision=launch.precision,
        run_dir=str(run_dir),
    )


TRAIN = Command(
    spec=SPEC,
    module="mlm.cli.train",
    worker="mlm.train.worker",
    preflight=_preflight,
    file_problems=_file_problems,
    show=show,
    prepare=_prepare,
    memory_hint=MEMORY_HINT,
    folder_key="run_dir",
    job_name=lambda config: config.model.name,
    a_slip_misleads=True,
)

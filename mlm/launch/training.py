"""mlm-train as the launcher sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mlm.config.command import TRAIN as CONFIGURED
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.data.checks import problems as data_problems
from mlm.errors import ConfigError, Problem
from mlm.eval.checks import settled_paths, task_problems
from mlm.files import write_whole
from mlm.launch import finetuning, lock, preflight, resume, rundir
from mlm.launch.command import Command, Say
from mlm.launch.dry_run import show
from mlm.launch.initial_weights import model_and_tokenizer
from mlm.launch.machine import Machine
from mlm.launch.preflight import Launch
from mlm.launch.resume_checks import check
from mlm.launch.verdict import MEMORY_HINT

SPEC = replace(CONFIGURED, from_checkpoint=model_and_tokenizer, completed=finetuning.completed)


def _preflight(
    config: TrainConfig, machine: Machine, environment: Mapping[str, str]
) -> tuple[Launch, list[Problem]]:
    cwd, now = Path.cwd(), datetime.now()
    goes_on = resume.goes_on_in_place(config, rundir.choose(config.run_dir, config.model.name, cwd, now))
    launch, problems = preflight.preflight(config, machine, environment, cwd=cwd, now=now, goes_on=goes_on)
    try:
        settled = _resolved(config, launch)
    except ConfigError:
        settled = None  # why it cannot be laid out is among the problems already
    return launch, problems + resume.problems(config, settled, launch.run_dir)


def _file_problems(config: TrainConfig) -> list[Problem]:
    model, evaluation = config.model, config.eval
    if config.finetune.task is not None:
        return finetuning.problems(config)
    found = data_problems(
        config.data, config.tokenizer, model.vocab_size, model.seq_length, config.objective.name
    )
    return found + task_problems(evaluation.tasks, evaluation.task_paths, prefix="eval.")


def _prepare(config: TrainConfig, launch: Launch, say: Say) -> tuple[Path, TrainConfig]:
    """Raises ConfigError or DataError."""
    from mlm.data.prepare import prepare_data
    from mlm.data.tokenizers import keep_tokenizer

    model, evaluation = config.model, config.eval
    if launch.goes_on:
        # Before anything is looked at: another job may be writing there.
        lock.hold(launch.run_dir)
    beginning = resume.begin(config, launch.run_dir, say, in_place=launch.goes_on)
    # Found once, so that every worker on every machine reads the same files.
    paths = settled_paths(evaluation.tasks, evaluation.task_paths)
    config = replace(config, eval=replace(evaluation, task_paths=paths))
    if config.finetune.task is not None:
        data = finetuning.prepare(config)
    else:
        data = prepare_data(
            config.data, config.tokenizer, model.vocab_size, model.seq_length, say, config.objective.name
        )
    check(beginning, _resolved(config, launch), data, say)
    run_dir = launch.run_dir
    if not launch.goes_on:
        run_dir = rundir.create(run_dir, given=config.run_dir is not None, job_id=launch.job_id)
        lock.hold(run_dir)
    beginning.settle(run_dir, say)
    data = replace(data, tokenizer=keep_tokenizer(data.tokenizer, run_dir))
    write_whole(run_dir / "data.json", data.to_json())
    return run_dir, _resolved(config, replace(launch, run_dir=run_dir))


def _resolved(config: TrainConfig, launch: Launch) -> TrainConfig:
    """Raises ConfigError where it cannot be laid out."""
    asked = config.resume
    return replace(
        resolved(
            config,
            device=launch.device,
            processes=launch.processes,
            threads=launch.threads,
            precision=launch.precision,
            run_dir=str(launch.run_dir),
        ),
        resume=asked if asked in (resume.AUTO, resume.NEVER) else str(Path(asked).expanduser().absolute()),
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
    restart=resume.restart,
)

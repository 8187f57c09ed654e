"""What the launcher has to know of a command that starts workers; the rest of mlm.launch serves them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from mlm.config.command import Spec
from mlm.config.fields import C
from mlm.errors import Problem
from mlm.launch.machine import Machine
from mlm.launch.preflight import Launch

Say = Callable[[str], None]
"""Prints a line on standard error, with the command's name in front."""


@dataclass(frozen=True)
class Command(Generic[C]):
    """A command, as functions of its configuration.

    module: of the command itself, run as `python -m MODULE ARGUMENTS`.
    worker: module that is run as `python -m WORKER CONFIG_PATH` and has main(path) -> exit code.
    preflight: the launch on this machine and what forbids it. file_problems: what its files have against it.
    show: the plan, printed. prepare: everything one process does before workers start; returns the directory
    of the job, made by it, and the configuration in which nothing is left to be decided.
    folder_key: what names the directory of the job, run_dir or out. job_name: of a job in a queue.
    a_slip_misleads: whether, after a mistyped choice, the problems of what stands there instead are noise.
    restart: makes the directory ready for another attempt, when workers have died, and returns the checkpoint
    that it goes on from; None: what has failed stays so.
    is_scratch: whether the directory is only what launcher and workers tell each other, removed when they
    have ended and left no failure there.
    """

    spec: Spec[C]
    module: str
    worker: str
    preflight: Callable[[C, Machine, Mapping[str, str]], tuple[Launch, list[Problem]]]
    file_problems: Callable[[C], list[Problem]]
    show: Callable[[C, Launch, Machine, Sequence[Problem], Sequence[str], Sequence[Path]], None]
    prepare: Callable[[C, Launch, Say], tuple[Path, C]]
    memory_hint: str
    folder_key: str
    job_name: Callable[[C], str]
    a_slip_misleads: bool
    restart: Callable[[Path, Say], Path | None] | None = None
    is_scratch: bool = False

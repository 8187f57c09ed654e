"""What every worker process does around its work: it hears signals, records its failure, leaves cleanly."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mlm.config.schema import EvalConfig, GenerateConfig, TrainConfig
from mlm.failures import LAUNCHER_PID, record_failure
from mlm.launch import signals
from mlm.launch.orphans import watch_parent
from mlm.launch.signals import Signals

if TYPE_CHECKING:
    from mlm.parallel.job import Place


def listen(*, orderly: bool) -> Signals:
    """Hear signals and end with the launcher; call it before anything slow. Returns what will be heard.

    orderly: whether the task looks there and ends by itself. Otherwise signals end the process, as they do
    when a second one comes and no launcher of ours, which would see to that, has started it.
    """
    launched = LAUNCHER_PID in os.environ
    heard = Signals(on_second=None if launched else _leave_at_once)
    if launched:
        # The launcher's word for `end now`, also where it was told by nohup to ignore the terminal's.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Python's own answer to Ctrl-C would be a traceback of every rank.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if orderly:
        heard.listen(signals.ASKED if launched else signals.STOP)
    signals.let_through()
    watch_parent()
    return heard


def _leave_at_once(number: signal.Signals) -> None:
    os._exit(128 + number)


def work(task: Callable[[], int | None], folder: Path, command: str) -> int:
    """Do the task as rank RANK and return the process's exit code: 1, or the task's own (None: 0).

    task keeps nothing alive when it returns: model, mesh and groups are its own locals. A failure is recorded
    in folder/errors with its rank and traceback, for the launcher to show, and not printed here: by the time
    its peers have failed too, the cause would be buried.
    """
    try:
        code = task() or 0
    except BaseException as error:
        record_failure(folder, int(os.environ.get("RANK", 0)), error, command)
        return 1
    # gloo's threads must find nothing of ours when the interpreter ends: drop all references, then the
    # groups.
    gc.collect()
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    return code


def place_of(config: TrainConfig | EvalConfig | GenerateConfig) -> Place:
    """This process's place in the job that a resolved configuration describes; collective over its ranks."""
    from mlm.parallel.job import take_place

    assert config.dp is not None, "the launcher resolves dp"
    return take_place(
        device=config.launch.device,
        threads=config.launch.threads,
        matmul=config.precision.matmul,
        tp=config.tp,
        pp=config.pp,
        dp=config.dp,
        timeout_s=config.launch.timeout_s,
    )


def leave(code: int) -> None:
    """End the process without the interpreter's own end, in which gloo's threads can abort it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

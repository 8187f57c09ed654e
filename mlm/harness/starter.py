"""The process between lm_eval's and the workers: `python -m mlm.harness.starter FOLDER PROCESSES`.

The launcher needs a main thread for its signals and the environment to itself; lm_eval's process has other
uses for both. It ends when the workers do, and ends them when lm_eval's process has gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from mlm.config.schema import EvalConfig
from mlm.config.store import load_config
from mlm.errors import LaunchError
from mlm.failures import LAUNCHER_PID, read_failures
from mlm.files import write_whole
from mlm.harness.messages import CONFIG, REPORT
from mlm.launch.local import run_workers, worker_arguments, worker_environment
from mlm.launch.orphans import watch_parent
from mlm.launch.verdict import explain

SAVE_GRACE_S = 2.0
"""Seconds from a signal until the workers are killed; they have nothing to save."""
MEMORY_HINT = "try a smaller batch_tokens, or a larger tp"


def main(folder: Path, processes: int) -> int:
    """Run the workers to their end; returns 0, or 1 with what went wrong in the folder's report."""
    asker = int(os.environ[LAUNCHER_PID])
    # The kernel's own notice comes when the thread that started us ends, which need not be the main one.
    watch_parent(asker, end=lambda: os.kill(os.getpid(), signal.SIGTERM))
    config = load_config(folder / CONFIG, EvalConfig)
    environment = worker_environment(
        os.environ,
        device=config.launch.device,
        tp=config.tp,
        threads=config.launch.threads or 1,
        started_s=time.time(),
    )
    try:
        outcome = run_workers(
            worker_arguments("mlm.harness.worker", folder / CONFIG),
            processes,
            environment,
            failure_grace_s=config.launch.failure_grace_s,
            save_grace_s=SAVE_GRACE_S,
            tell=lambda line: None,
        )
    except LaunchError as error:
        write_whole(folder / REPORT, str(error))
        return 1
    if outcome.succeeded or outcome.heard is not None:
        if os.getppid() != asker:
            shutil.rmtree(folder, ignore_errors=True)  # which it would have done
        return 0
    report = explain(
        read_failures(folder),
        outcome.first_exits,
        processes,
        folder,
        command="mlm-harness",
        memory_hint=MEMORY_HINT,
    )
    write_whole(folder / REPORT, report)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))

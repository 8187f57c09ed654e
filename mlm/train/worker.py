"""One worker process: `python -m mlm.train.worker RUN_DIR/config.yaml`, started by torchrun."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mlm.config.store import load_config
from mlm.failures import LAUNCHER_PID, STARTED
from mlm.launch import signals
from mlm.launch.signals import Signals
from mlm.launch.stopped import EXIT_SAVED
from mlm.launch.worker import leave, listen, work


def main(config_path: str | Path) -> int:
    """Train as the resolved configuration says; returns the process's exit code: 0, 1 or 75."""
    heard = listen(orderly=True)
    config = load_config(config_path)
    assert config.run_dir is not None, "the launcher resolves run_dir"
    return work(lambda: _train(config_path, heard), Path(config.run_dir), "mlm-train")


def _train(config_path: str | Path, heard: Signals) -> int:
    from mlm.launch.lock import hold_as_worker
    from mlm.train.log import set_up_logging
    from mlm.train.loop import train
    from mlm.train.setup import set_up
    from mlm.train.watchdog import Watchdog

    config = load_config(config_path)
    assert config.run_dir is not None
    hold_as_worker(Path(config.run_dir))
    set_up_logging(int(os.environ.get("RANK", 0)), Path(config.run_dir))
    started = float(os.environ.get(STARTED, time.time()))
    with Watchdog(Path(config.run_dir), config.launch.timeout_s, nccl=config.launch.device == "cuda"):
        finished = train(set_up(config), started, heard)
    if finished:
        return 0
    # The others are still leaving, and whoever started them may answer the first exit with a signal to them.
    signals.ignore()
    # Our own launcher reads stopped.json, and would take any other code for a failure.
    return 0 if LAUNCHER_PID in os.environ else EXIT_SAVED


if __name__ == "__main__":
    leave(main(sys.argv[1]))

"""One worker process: `python -m mlm.train.worker RUN_DIR/config.yaml`, started by torchrun."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mlm.config.store import load_config
from mlm.launch.worker import leave, listen, work


def main(config_path: str | Path) -> int:
    """Train as the resolved configuration says; returns the process's exit code, 0 or 1."""
    listen()
    config = load_config(config_path)
    assert config.run_dir is not None, "the launcher resolves run_dir"
    return work(lambda: _train(config_path), Path(config.run_dir), "mlm-train")


def _train(config_path: str | Path) -> None:
    from mlm.train.log import set_up_logging
    from mlm.train.loop import train
    from mlm.train.setup import set_up

    config = load_config(config_path)
    assert config.run_dir is not None
    set_up_logging(int(os.environ.get("RANK", 0)), Path(config.run_dir))
    started = float(os.environ.get("MLM_STARTED", time.time()))
    train(set_up(config), started)


if __name__ == "__main__":
    leave(main(sys.argv[1]))

"""One worker process: `python -m mlm.train.worker RUN_DIR/config.yaml`, started by torchrun."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from pathlib import Path

from mlm.config.store import load_config
from mlm.failures import record_failure
from mlm.launch.orphans import watch_parent


def main(config_path: str | Path) -> int:
    """Train as the resolved configuration says; returns the process's exit code, 0 or 1.

    A failure is recorded in run_dir/errors with its rank and traceback, for the launcher to show, and not
    printed here: by the time its peers have failed too, the cause would be buried.
    """
    # A terminal sends Ctrl-C to every process; the launcher answers for all of them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    watch_parent()
    config = load_config(config_path)
    assert config.run_dir is not None, "the launcher resolves run_dir"
    run_dir, rank = Path(config.run_dir), int(os.environ.get("RANK", 0))
    try:
        _train(config_path)
    except BaseException as error:
        record_failure(run_dir, rank, error)
        return 1
    # gloo's threads must find nothing of ours when the interpreter ends: drop all references, then the
    # groups.
    gc.collect()
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


def _train(config_path: str | Path) -> None:
    """In a function of its own, so that model, mesh and groups are gone when it returns."""
    from mlm.train.log import set_up_logging
    from mlm.train.loop import train
    from mlm.train.setup import set_up

    config = load_config(config_path)
    assert config.run_dir is not None
    set_up_logging(int(os.environ.get("RANK", 0)), Path(config.run_dir))
    started = float(os.environ.get("MLM_STARTED", time.time()))
    train(set_up(config), started)


def leave(code: int) -> None:
    """End the process without the interpreter's own end, in which gloo's threads can abort it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1]))

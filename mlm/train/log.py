"""The ranked logger: rank 0 speaks to the console and to a file, other ranks only when they must."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

logger = logging.getLogger("mlm")


class _StandardOutput(logging.Handler):
    """Prints to whatever sys.stdout is at the moment: the progress bar puts itself there to stay below."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stdout, flush=True)


def set_up_logging(rank: int, run_dir: Path, file_name: str = "train.log") -> None:
    """Rank 0: every message, to standard output as it is and to run_dir/FILE_NAME with the time.

    Other ranks: warnings and worse, with the rank in front, to standard error and the same file.
    """
    logger.handlers.clear()
    logger.propagate = False
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    who = "" if rank == 0 else f"[rank {rank}] "
    console: logging.Handler = _StandardOutput() if rank == 0 else logging.StreamHandler()
    console.setFormatter(logging.Formatter(f"{who}%(message)s"))
    file = logging.FileHandler(run_dir / file_name, encoding="utf-8")
    file.setFormatter(logging.Formatter(f"%(asctime)s {who}%(message)s"))
    logger.addHandler(console)
    logger.addHandler(file)

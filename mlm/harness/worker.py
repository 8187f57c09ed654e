"""One process of the model `mlm`: `python -m mlm.harness.worker FOLDER/config.yaml`.

Every rank has a connection of its own to lm_eval's process and hears every request there: waiting for the
next one is no collective, and may take as long as it likes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from mlm.config.schema import EvalConfig
from mlm.config.store import load_config
from mlm.launch.worker import leave, listen, place_of, work

if TYPE_CHECKING:
    from mlm.eval.load import Loaded
    from mlm.harness.messages import Request
    from mlm.parallel.job import Place

PROGRESS_S = 0.2
"""Least seconds between two reports."""


def main(config_path: str | Path) -> int:
    """Answer requests until nobody asks any more; returns the process's exit code, 0 or 1."""
    listen(orderly=False)
    folder = Path(config_path).parent
    config = load_config(config_path, EvalConfig)
    return work(lambda: _serve(config, folder), folder, "mlm-harness")


def _serve(config: EvalConfig, folder: Path) -> None:
    from mlm.eval.load import load_for_evaluation
    from mlm.eval.locate import resolve_checkpoint
    from mlm.harness import messages
    from mlm.train.log import set_up_logging
    from mlm.train.watchdog import Watchdog, watch

    assert config.checkpoint is not None
    set_up_logging(int(os.environ.get("RANK", 0)), folder, "workers.log")
    nccl = config.launch.device == "cuda"
    with Watchdog(folder, config.launch.timeout_s, nccl=nccl):
        watch("the loading of the model")
        place = place_of(config)
        loaded = load_for_evaluation(
            resolve_checkpoint(config.checkpoint), mesh=place.mesh, device=place.device
        )
    asker = messages.connect(folder)
    asker.send(messages.Hello(place.mesh.rank))
    number = 0
    while (request := _next(asker)) is not None:
        number += 1
        with Watchdog(folder, config.launch.timeout_s, nccl=nccl):
            watch(f"request {number}")
            value = _answer(request, config, place, loaded, _reporter(asker, place.mesh.rank))
        asker.send(messages.Answer(value))


def _next(asker: Connection) -> Request | None:
    """The next request; None when the asking process has closed the connection, or has died."""
    try:
        request: Request = asker.recv()
    except (EOFError, ConnectionResetError):
        return None
    return request


def _answer(
    request: Request,
    config: EvalConfig,
    place: Place,
    loaded: Loaded,
    report: Callable[[int, int], None] | None,
) -> object:
    from mlm.eval.score import default_batch_tokens, score
    from mlm.harness.messages import Score
    from mlm.parallel.device import autocast_for

    autocast = autocast_for(config.precision.name, place.device)
    batch_tokens = config.batch_tokens or default_batch_tokens(place.device)
    if isinstance(request, Score):
        scores = score(
            loaded.model,
            request.segments,
            seq_length=loaded.config.seq_length,
            vocab_size=loaded.config.vocab_size,
            batch_tokens=batch_tokens,
            mesh=place.mesh,
            device=place.device,
            autocast=autocast,
            progress=report,
        )
        return scores if place.mesh.rank == 0 else None
    from mlm.harness.generation import generate

    texts = generate(
        request, loaded, place.mesh, place.device, batch_tokens=batch_tokens, autocast=autocast, report=report
    )
    return texts if place.mesh.tp.rank == 0 else None


def _reporter(asker: Connection, rank: int) -> Callable[[int, int], None] | None:
    if rank != 0:
        return None
    from mlm.harness.messages import Progress

    said_at = [0.0]

    def report(done: int, total: int) -> None:
        now = time.monotonic()
        if now - said_at[0] >= PROGRESS_S or done == total:
            said_at[0] = now
            asker.send(Progress(done, total))

    return report


if __name__ == "__main__":
    leave(main(sys.argv[1]))

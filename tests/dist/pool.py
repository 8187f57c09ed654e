"""Pools of gloo processes that live for the whole test session and run one function after another.

Starting a process costs an `import torch`; a pool of each size is started once and shared by all tests.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TIMEOUT_S = 240


class RankError(AssertionError):
    """A function raised on one of the ranks."""


class Pool:
    """`world_size` processes in one process group; `run(fn, *args)` calls fn on each of them."""

    def __init__(self, world_size: int):
        self.world_size = world_size
        self._folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        rendezvous = str(Path(self._folder.name) / "rendezvous")
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, world_size, rendezvous), daemon=True)
            process.start()
            self._connections.append(ours)
            self._processes.append(process)

    def run(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        """Results by rank. Raises RankError with the traceback of the first rank that failed."""
        for connection in self._connections:
            connection.send((fn, args))
        results, failures = [], []
        for rank, connection in enumerate(self._connections):
            if not connection.poll(TIMEOUT_S):
                self.close()
                raise RankError(f"rank {rank} of {self.world_size} did not answer within {TIMEOUT_S} s")
            ok, value = connection.recv()
            results.append(value)
            if not ok:
                failures.append(f"rank {rank} of {self.world_size}:\n{value}")
        if failures:
            raise RankError("\n".join(failures))
        return results

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def _serve(connection: Connection, rank: int, world_size: int, rendezvous: str) -> None:
    import warnings

    import torch
    import torch.distributed as dist

    warnings.simplefilter("error")  # as in the tests' own process
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
    while True:
        fn, args = connection.recv()
        try:
            connection.send((True, fn(*args)))
        except BaseException:
            connection.send((False, traceback.format_exc()))

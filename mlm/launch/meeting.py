"""How the processes of a step talk before there are process groups: through the rendezvous store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mlm.errors import LaunchError
from mlm.launch.step import Step

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

PEERS_TIMEOUT_S = 900.0
"""Seconds until all processes of the step must have started: nodes boot and load containers unevenly."""
POLL_S = 0.05


class Meeting:
    """The processes of a step, talking through the store they also use to find each other.

    Raises LaunchError when the store cannot be reached or somebody does not answer in time.
    """

    def __init__(self, step: Step, environment: Mapping[str, str]):
        from torch.distributed import DistError
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        self.step = step
        self._errors: tuple[type[Exception], ...] = (DistError, RuntimeError)
        try:
            # torch's own rule decides who hosts the store: torchrun's agent, or rank 0.
            store, _, _ = next(
                rendezvous("env://", step.rank, step.world_size, timeout=timedelta(seconds=PEERS_TIMEOUT_S))
            )
        except (*self._errors, ValueError) as error:
            address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            raise LaunchError(
                f"rank {step.rank} cannot meet the others at MASTER_ADDR:MASTER_PORT={address}: {error}"
            ) from None
        attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store: Store = PrefixStore(f"mlm/join/{attempt}", store)

    def tell(self, key: str, value: dict[str, Any]) -> None:
        self._store.set(key, json.dumps(value))

    def hear(self, key: str, timeout_s: float) -> dict[str, Any]:
        """What was told under key, waiting for it. Python keeps hearing signals meanwhile."""
        self._until(lambda: self._store.check([key]), timeout_s, f"rank 0 has not said {key!r}")
        heard: dict[str, Any] = json.loads(self._store.get(key))
        return heard

    def count(self, key: str) -> None:
        """Add this process to the count of a key."""
        self._store.add(key, 1)

    def wait_for_count(self, key: str, number: int, timeout_s: float, *, unless: str | None = None) -> bool:
        """Wait until number processes have counted; False when something was told under `unless` first."""

        def done() -> bool:
            stopped = unless is not None and self._store.check([unless])
            return stopped or self._store.add(key, 0) >= number

        self._until(done, timeout_s, f"not all {number} processes have answered {key!r}")
        return unless is None or not self._store.check([unless])

    def _until(self, done: Callable[[], bool], timeout_s: float, complaint: str) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            while not done():
                if time.monotonic() > deadline:
                    raise LaunchError(f"rank {self.step.rank}: {complaint} within {timeout_s:g} s")
                time.sleep(POLL_S)
        except self._errors as error:
            raise LaunchError(f"rank {self.step.rank} has lost the others: {error}") from None

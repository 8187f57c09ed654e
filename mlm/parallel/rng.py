"""Two streams of random numbers for dropout (paper, section 3 and appendix on random numbers).

Outside the split regions every tensor-parallel rank holds the same activations and must drop the same
elements. Inside (attention probabilities) each rank holds other heads and must drop other elements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mlm.parallel.device import default_generator
from mlm.parallel.mesh import Mesh


class RngStreams:
    """The default generator of the mesh's device, and a second stream for tensor-parallel regions.

    The default stream depends on (seed, step, dp rank): equal on all tp ranks, different between replicas,
    which see different samples. The second depends on the tp rank too. Both begin anew with each step, so
    what a step draws follows from its number, whatever was drawn before, and a checkpoint need not store it.
    """

    def __init__(self, seed: int, mesh: Mesh, device: torch.device):
        self._generator = default_generator(device)
        self._seed, self._mesh = seed, mesh
        self.begin_step(0)

    def begin_step(self, step: int) -> None:
        """Start both streams of that step; its micro batches draw from them one after the other."""
        mesh = self._mesh
        outside = f"{self._seed}/dropout/step{step}/dp{mesh.dp.rank}/pp{mesh.pp.rank}"
        self._generator.manual_seed(_seed_from(f"{outside}/tp{mesh.tp.rank}"))
        self._inside_state = self._generator.get_state()
        self._generator.manual_seed(_seed_from(outside))

    @contextmanager
    def tensor_parallel_region(self) -> Iterator[None]:
        """Random numbers drawn inside differ between tp ranks; the default stream does not move."""
        outside_state = self._generator.get_state()
        self._generator.set_state(self._inside_state)
        try:
            yield
        finally:
            self._inside_state = self._generator.get_state()
            self._generator.set_state(outside_state)


def _seed_from(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1

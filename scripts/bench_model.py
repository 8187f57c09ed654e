"""What benchmarks of one process share: its start as a worker's, and a model of random weights."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mlm.config.compose import compose
from mlm.config.schema import ModelConfig
from mlm.launch.local import worker_environment

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from mlm.parallel.mesh import Mesh

INIT_STD = 0.06
"""Larger than in training, so that random logits differ enough for their largest to be clear."""


class Subject(NamedTuple):
    """A model on the CPU of one process, with one thread. matmul: how fp32 products are computed."""

    config: ModelConfig
    model: nn.Module
    mesh: Mesh
    device: torch.device
    matmul: str

    def weights(self) -> dict[str, Tensor]:
        """By our names."""
        from mlm.parallel.parameter import named_declarations

        return {name: parameter for name, parameter, _ in named_declarations(self.model)}


def start_as_worker() -> None:
    """Go on as a process that was started with a worker's environment, of one thread."""
    os.environ.update(worker_environment({}, device="cpu", tp=1, threads=1, started_s=time.time()))
    # The allocator reads its environment when the process starts, as it does in a worker.
    if os.environ.get("MLM_BENCH_STARTED") is None:
        os.environ["MLM_BENCH_STARTED"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])


def random_model(overrides: Sequence[str], matmul: str) -> Subject:
    """The model that overrides name, gpt2_small_cpu without any."""
    import torch

    from mlm.models.registry import build_model
    from mlm.parallel.device import set_matmul_precision
    from mlm.parallel.mesh import Mesh
    from mlm.parallel.rng import RngStreams

    torch.set_num_threads(1)
    device, mesh = torch.device("cpu"), Mesh.single()
    chosen = set_matmul_precision(matmul, device)
    config = replace(compose(overrides or ["model=gpt2_small_cpu"]).model, init_std=INIT_STD)
    model = build_model(config, tp=mesh.tp, rng=RngStreams(0, mesh, device), seed=0)
    return Subject(config, model, mesh, device, chosen)

"""From a resolved configuration to everything a run needs: device, mesh, model, optimizer, data."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from mlm.config.schema import TrainConfig
from mlm.data.indexed import IndexedDataset
from mlm.data.prepared import PreparedData
from mlm.data.samples import TokenWindows, ValidationWindows
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, ParameterGroup, parameter_groups
from mlm.parallel.data_parallel import replicate
from mlm.parallel.device import backend_for, device_name, select_device, set_matmul_precision
from mlm.parallel.mesh import Mesh, build_mesh
from mlm.parallel.rng import RngStreams
from mlm.plan.flops import model_flops_per_step
from mlm.plan.hardware import peak_tflops


@dataclass(frozen=True)
class Run:
    """One rank's view of a run."""

    config: TrainConfig
    run_dir: Path
    mesh: Mesh
    device: torch.device
    device_name: str
    matmul_precision: str
    data: PreparedData
    model: nn.Module
    """The bare model; `replica` is the same model inside its data-parallel wrapper."""
    replica: nn.Module
    groups: list[ParameterGroup]
    optimizer: AdamW
    train: TokenWindows
    valid: ValidationWindows | None
    autocast: Callable[[], AbstractContextManager[object]]
    flops_per_step: int
    peak_flops: float | None
    """Dense peak of one device in the run's precision, FLOP/s; None: unknown."""

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks and writes for the job."""
        return self.mesh.rank == 0

    @property
    def tokens_per_step(self) -> int:
        return self.config.train.global_batch_size * self.config.model.seq_length


def set_up(config: TrainConfig) -> Run:
    """Build a rank's run; collective over all ranks of the job, whose environment torchrun has set."""
    assert config.run_dir is not None, "the launcher resolves run_dir"
    assert config.dp is not None, "the launcher resolves dp"
    run_dir = Path(config.run_dir)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = select_device(config.launch.device, int(os.environ.get("LOCAL_RANK", 0)))
    if device.type == "cpu":
        torch.set_num_threads(config.launch.threads or 1)
    if config.deterministic:  # even False imports the compiler, most of a second
        torch.use_deterministic_algorithms(True)
    matmul_precision = set_matmul_precision(config.precision.matmul, device)

    mesh = Mesh.single()
    if world_size > 1:
        dist.init_process_group(
            backend_for(device),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=config.launch.timeout_s),
            device_id=device if device.type == "cuda" else None,
        )
        mesh = build_mesh(config.tp, config.pp, config.dp, device.type)

    rng = RngStreams(config.seed, mesh, device)
    model = build_model(
        config.model,
        tp=mesh.tp,
        rng=rng,
        seed=config.seed,
        overlap=config.parallel.overlap_grad_reduce,
        device=device,
    )
    groups = parameter_groups(model, config.optim.weight_decay)
    optimizer = AdamW(groups, beta1=config.optim.beta1, beta2=config.optim.beta2, eps=config.optim.eps)

    data = PreparedData.from_json((run_dir / "data.json").read_text(encoding="utf-8"))
    tokens = IndexedDataset(data.prefix).tokens
    seq = config.model.seq_length
    name = device_name(device)
    peak = peak_tflops(name, config.precision.name)
    return Run(
        config=config,
        run_dir=run_dir,
        mesh=mesh,
        device=device,
        device_name=name,
        matmul_precision=matmul_precision,
        data=data,
        model=model,
        replica=replicate(model, mesh.dp, config.parallel.ddp_bucket_mb),
        groups=groups,
        optimizer=optimizer,
        train=TokenWindows(tokens, *data.ranges["train"], seq, config.seed),
        valid=ValidationWindows(tokens, *data.ranges["valid"], seq) if data.valid_samples else None,
        autocast=autocast_for(config.precision.name, device),
        flops_per_step=model_flops_per_step(config.model, config.train.global_batch_size),
        peak_flops=None if peak is None else peak * 1e12,
    )


def autocast_for(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """The context of forward passes: bf16 autocast over fp32 parameters, or nothing for fp32."""
    if precision == "bf16":
        return partial(torch.autocast, device.type, dtype=torch.bfloat16)
    return nullcontext

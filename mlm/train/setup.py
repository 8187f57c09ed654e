"""From a resolved configuration to everything a run needs: device, mesh, model, optimizer, data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from mlm.config.schema import TrainConfig
from mlm.data.prepared import PreparedData
from mlm.data.reading import ValidationSet, training_samples, validation_sets
from mlm.data.samples import Samples
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, ParameterGroup, parameter_groups
from mlm.parallel.data_parallel import replicate
from mlm.parallel.device import autocast_for, device_name
from mlm.parallel.job import take_place
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from mlm.plan.flops import hardware_flops_per_step, model_flops_per_step
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
    train: Samples
    valid: list[ValidationSet]
    """The validation splits; none where nothing is held out."""
    autocast: Callable[[], AbstractContextManager[object]]
    flops_per_step: int
    """Model FLOPs of the whole job."""
    hardware_flops_per_step: int
    peak_flops: float | None
    """Dense peak of one device in the run's precision, FLOP/s; None: unknown."""

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks and writes for the job."""
        return self.mesh.rank == 0

    @property
    def resets_at_documents(self) -> bool:
        """Whether the model has to know where documents begin in its samples."""
        return self.config.data.reset_positions or self.config.data.reset_attention

    @property
    def tokens_per_step(self) -> int:
        return self.config.train.global_batch_size * self.config.model.seq_length


def set_up(config: TrainConfig) -> Run:
    """Build a rank's run; collective over all ranks of the job, whose environment torchrun has set."""
    assert config.run_dir is not None, "the launcher resolves run_dir"
    assert config.dp is not None, "the launcher resolves dp"
    run_dir = Path(config.run_dir)
    if config.deterministic:  # even False imports the compiler, most of a second
        torch.use_deterministic_algorithms(True)
    place = take_place(
        device=config.launch.device,
        threads=config.launch.threads,
        matmul=config.precision.matmul,
        tp=config.tp,
        pp=config.pp,
        dp=config.dp,
        timeout_s=config.launch.timeout_s,
    )
    device, mesh = place.device, place.mesh

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
    packed = config.data.reset_positions or config.data.reset_attention
    name = device_name(device)
    peak = peak_tflops(name, config.precision.name)
    return Run(
        config=config,
        run_dir=run_dir,
        mesh=mesh,
        device=device,
        device_name=name,
        matmul_precision=place.matmul_precision,
        data=data,
        model=model,
        replica=replicate(model, mesh.dp, config.parallel.ddp_bucket_mb),
        groups=groups,
        optimizer=optimizer,
        train=training_samples(
            data, config.seed, shuffle_documents=config.data.shuffle_documents, packed=packed
        ),
        valid=validation_sets(data, packed=packed),
        autocast=autocast_for(config.precision.name, device),
        flops_per_step=model_flops_per_step(config.model, config.train.global_batch_size),
        hardware_flops_per_step=hardware_flops_per_step(config.model, config.train.global_batch_size),
        peak_flops=None if peak is None else peak * 1e12,
    )

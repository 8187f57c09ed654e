"""From a resolved configuration to everything a run needs: device, mesh, model, optimizer, data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from mlm.checkpoint.state import TrainingState
from mlm.config.schema import TrainConfig
from mlm.data.prepared import PreparedData
from mlm.launch.worker import place_of
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, ParameterGroup, parameter_groups
from mlm.parallel.data_parallel import replicate
from mlm.parallel.device import autocast_for, device_name
from mlm.parallel.job import Place
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from mlm.plan.flops import hardware_flops_per_step, model_flops_per_step, outputs_per_sample
from mlm.plan.hardware import peak_tflops
from mlm.train.guard import Guard, Scaling
from mlm.train.objectives import Objective, Setting, build_objective
from mlm.train.resume import begin, draws, read_plan


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
    objective: Objective
    """What is trained for: the samples, their loss and what is said of it."""
    autocast: Callable[[], AbstractContextManager[object]]
    rng: RngStreams
    guard: Guard
    """Decides whether a step's update is applied."""
    state: TrainingState
    """Where training begins: all zeros, or what the checkpoint says."""
    attempt: int
    """How often the run was started, this time included; metrics of a later attempt stand for a step."""
    resumed_from: Path | None
    """The checkpoint that training continues; None when it begins at step 0."""
    flops_per_step: int
    """Model FLOPs of the whole job."""
    hardware_flops_per_step: int
    peak_flops: float | None
    """Dense peak of one device in the run's precision, FLOP/s; None: unknown."""

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks and writes for the job."""
        return self.mesh.rank == 0


def set_up(config: TrainConfig) -> Run:
    """Build a rank's run; collective over all ranks of the job, whose environment torchrun has set."""
    if config.deterministic:  # even False imports the compiler, most of a second
        torch.use_deterministic_algorithms(True)
    place = place_of(config)
    return build_run(config, place)


def build_run(config: TrainConfig, place: Place, dtype: torch.dtype = torch.float32) -> Run:
    """The same for a rank that has its place already, with parameters of that dtype; collective."""
    assert config.run_dir is not None, "the launcher resolves run_dir"
    run_dir, device, mesh = Path(config.run_dir), place.device, place.mesh
    rng = RngStreams(config.seed, mesh, device)
    origin, data = read_plan(run_dir, mesh)
    model = build_model(
        # Nothing is drawn for weights that are about to be read.
        config.model if draws(origin, config) else replace(config.model, init_std=0.0),
        tp=mesh.tp,
        rng=rng,
        seed=config.seed,
        objective=config.objective.name,
        overlap=config.parallel.overlap_grad_reduce,
        dtype=dtype,
        device=device,
    )
    groups = parameter_groups(model, config.optim.weight_decay)
    optimizer = AdamW(groups, beta1=config.optim.beta1, beta2=config.optim.beta2, eps=config.optim.eps)
    state = begin(origin, model, optimizer, mesh, config)
    autocast = autocast_for(config.precision.name, device)
    name = device_name(device)
    objective = build_objective(Setting(config, run_dir, data, mesh, device, autocast))
    (batch, length), outputs = objective.sequences, outputs_per_sample(config)
    shape = replace(config.model, seq_length=length)
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
        objective=objective,
        autocast=autocast,
        rng=rng,
        guard=_guard(config, mesh, device, state),
        state=state,
        attempt=origin.attempt,
        resumed_from=None if origin.checkpoint is None else Path(origin.checkpoint),
        flops_per_step=model_flops_per_step(shape, batch, outputs),
        hardware_flops_per_step=hardware_flops_per_step(shape, batch, outputs=outputs),
        peak_flops=None if peak is None else peak * 1e12,
    )


def _guard(config: TrainConfig, mesh: Mesh, device: torch.device, state: TrainingState) -> Guard:
    """With fp16's loss scale where a checkpoint left it, or from the beginning."""
    precision, scaling = config.precision, None
    if precision.name == "fp16":
        scaling = Scaling(
            initial=precision.initial_loss_scale,
            growth_steps=precision.scale_growth_steps,
            floor=precision.min_loss_scale,
        )
    return Guard(
        mesh.dp,
        device,
        max_bad_steps=config.train.max_bad_steps,
        scaling=scaling,
        loss_scale=state.loss_scale,
        good_steps=state.good_steps,
    )

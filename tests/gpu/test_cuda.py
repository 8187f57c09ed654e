"""What only a CUDA device can show: the same numbers as the CPU, and a step that never waits."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.device import autocast_for
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from mlm.train.guard import Guard, Scaling, Verdict
from mlm.train.objectives.next_token import TokenBatch
from mlm.train.profile import StepProfiler
from mlm.train.step import train_step
from tests.dist.meshes import TINY

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def losses(
    device: torch.device,
    dtype: torch.dtype,
    steps: int = 5,
    sync_debug: bool = False,
    precision: str = "fp32",
    guard: Guard | None = None,
) -> list[float]:
    mesh = Mesh.single()
    rng = RngStreams(3, mesh, device)
    model = build_model(TINY, tp=mesh.tp, rng=rng, seed=3, dtype=dtype, device=device)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    generator = torch.Generator().manual_seed(0)
    shares = []
    for step in range(steps):
        ids = torch.randint(0, TINY.vocab_size, (4, TINY.seq_length + 1), generator=generator).to(device)
        if sync_debug and step > 0:
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
        rng.begin_step(step)
        share, *_ = train_step(
            model,
            optimizer,
            [TokenBatch(ids, 4 * TINY.seq_length)],
            lr=1e-3,
            clip_grad_norm=1.0,
            mesh=mesh,
            autocast=autocast_for(precision, device),
            guard=guard,
        )
        torch.cuda.set_sync_debug_mode("default")
        shares.append(share)
    return [share.item() for share in shares]


def test_five_steps_equal_the_cpus():
    cpu = losses(torch.device("cpu"), torch.float64)
    assert losses(torch.device("cuda"), torch.float64) == pytest.approx(cpu, rel=1e-10)
    assert losses(torch.device("cuda"), torch.float32) == pytest.approx(cpu, rel=1e-4)


def test_a_profile_splits_the_steps_time_into_kernels_of_each_kind(tmp_path):
    device = torch.device("cuda", 0)
    model = build_model(
        TINY, tp=Mesh.single().tp, rng=RngStreams(3, Mesh.single(), device), seed=3, device=device
    )
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    ids = torch.zeros(4, TINY.seq_length + 1, dtype=torch.long, device=device)
    profiler = StepProfiler([2, 3], tmp_path, Mesh.single(), device)
    for step in (1, 2, 3):
        if step in profiler and not profiler.recording:
            profiler.start()
        with profiler.span(f"step {step}"):
            train_step(
                model,
                optimizer,
                [TokenBatch(ids, 4 * TINY.seq_length)],
                lr=1e-3,
                clip_grad_norm=1.0,
                mesh=Mesh.single(),
                autocast=nullcontext,
                span=profiler.span,
            )
    profiler.stop()
    times = profiler.write()
    assert times is not None
    (mine,) = times
    assert mine.compute_s > 0
    assert mine.optimizer_s > 0, "the optimizer's range is drawn over its kernels"
    assert mine.exposed_communication_s == 0
    assert mine.step_s == pytest.approx(sum(mine.values()[1:]), rel=1e-9)


def test_a_step_never_waits_for_the_device():
    losses(torch.device("cuda"), torch.float32, sync_debug=True)


def test_nor_does_a_guarded_step_in_fp16_and_it_follows_fp32():
    device = torch.device("cuda", 0)
    scaling = Scaling(initial=2.0**10, growth_steps=2, floor=1.0)
    guard = Guard(Mesh.single().dp, device, max_bad_steps=0, scaling=scaling)
    narrow = losses(device, torch.float32, sync_debug=True, precision="fp16", guard=guard)
    assert guard.verdict.item() == Verdict.UPDATED
    assert guard.loss_scale.item() == 2.0**12, "doubled after two updates, twice in five steps"
    assert narrow == pytest.approx(losses(device, torch.float32), rel=5 * 2.0**-11)


def test_an_overflow_leaves_parameters_and_moments_alone():
    device = torch.device("cuda", 0)
    parameter = torch.nn.Parameter(torch.ones(4, 4, device=device))
    optimizer = AdamW(
        parameter_groups(torch.nn.ParameterDict({"w": parameter}), 0.1), beta1=0.9, beta2=0.95, eps=1e-8
    )
    guard = Guard(Mesh.single().dp, device, max_bad_steps=0, scaling=Scaling(2.0**10, 2, 1.0))
    parameter.grad = torch.full_like(parameter, torch.inf)
    loss = torch.ones((), device=device)
    optimizer.step(0.1, guard.judge(loss, torch.full((), torch.inf, device=device, dtype=torch.float64)))
    assert (parameter == 1).all()
    assert all((tensor == 0).all() for _, *moments in optimizer.named_moments() for tensor in moments)
    assert guard.loss_scale.item() == 2.0**9

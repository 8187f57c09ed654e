"""The paper's 8.3B model at tp=8, a whole step without memory: shapes, traffic, and no wait of the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import FlopCounterMode

from mlm.config.compose import compose
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.mesh import Mesh, build_mesh
from mlm.parallel.parameter import count_parameters, named_declarations
from mlm.parallel.rng import RngStreams
from mlm.plan.flops import model_flops_per_step
from mlm.plan.parameters import count_parameters as planned_parameters
from mlm.train.guard import Guard, Scaling
from mlm.train.objectives.next_token import TokenBatch
from mlm.train.step import train_step
from tests.dist.recording import Recorder, elements


@pytest.fixture
def rank_of_8() -> Iterator[Mesh]:
    """Rank 3 of 8 over a group whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    yield build_mesh(tp=8, pp=1, dp=1, device_type="cpu")
    dist.destroy_process_group()


def test_a_step_of_the_8b_at_tp_8_holds_and_sends_what_the_paper_says(rank_of_8):
    mesh = rank_of_8
    model_config = compose(["model=gpt2_8b", "model.dropout=0", "model.attention_dropout=0"]).model
    rng = RngStreams(1, mesh, torch.device("cpu"))
    model = build_model(model_config, tp=mesh.tp, rng=rng, seed=1, device="meta")
    assert count_parameters(model) == (8_317_040_640, 1_043_549_184)
    assert planned_parameters(model_config, 8).total == 1_043_549_184
    for name, parameter, declaration in named_declarations(model):
        assert tuple(parameter.shape) == declaration.local_shape(mesh.tp), name

    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.999, eps=1e-8)
    batch, seq, hidden, layers = 2, 1024, 3072, 72
    ids = torch.empty(batch, seq + 1, dtype=torch.long, device="meta")
    # On meta a tensor has no value: whatever asks for one (item, if, boolean mask) raises.
    with Recorder() as seen, FlopCounterMode(display=False) as flops:
        train_step(
            model,
            optimizer,
            [TokenBatch(ids, batch * seq)],
            lr=1e-4,
            clip_grad_norm=1.0,
            mesh=mesh,
            autocast=nullcontext,
        )
    activation = batch * seq * hidden
    sent = elements(seen.collectives())
    assert sent.count(activation) == 4 * layers + 2, "two forward, two backward per layer; both embeddings"
    assert sum(sent) == (4 * layers + 2) * activation + 3 * batch * seq + 1
    assert flops.get_total_flops() == pytest.approx(model_flops_per_step(model_config, batch) / 8, rel=1e-12)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_step_asks_nothing_of_a_device_with_two_dropout_streams_and_a_guard(rank_of_8, precision):
    model_config = compose(["model=gpt2_tiny", "tp=2"]).model
    mesh = Mesh.single()
    rng = RngStreams(1, mesh, torch.device("cpu"))
    model = build_model(model_config, tp=mesh.tp, rng=rng, seed=1, device="meta")
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.999, eps=1e-8)
    ids = torch.empty(2, model_config.seq_length + 1, dtype=torch.long, device="meta")
    scaling = Scaling(initial=2.0**16, growth_steps=4, floor=1.0) if precision == "fp16" else None
    guard = Guard(mesh.dp, torch.device("meta"), max_bad_steps=0, scaling=scaling)
    rng.begin_step(1)
    share, norm, _ = train_step(
        model,
        optimizer,
        [TokenBatch(ids, 4 * model_config.seq_length)] * 2,
        lr=1e-4,
        clip_grad_norm=1.0,
        mesh=mesh,
        autocast=nullcontext,
        guard=guard,
    )
    assert share.is_meta
    assert norm.is_meta
    assert guard.verdict.is_meta

"""torch's count of a whole step of the shipped models, at their full size, on tensors without memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import FlopCounterMode

from mlm.config.compose import compose
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.mesh import Mesh, build_mesh
from mlm.parallel.rng import RngStreams
from mlm.plan.flops import model_flops_per_step, outputs_per_sample
from mlm.train.objectives.next_token import TokenBatch
from mlm.train.step import train_step
from tests.pairs import meta_pairs


@contextmanager
def last_rank_of(tp: int) -> Iterator[Mesh]:
    """The mesh of the last of tp ranks, over a group whose collectives do nothing."""
    if tp == 1:
        yield Mesh.single()
        return
    dist.init_process_group("fake", store=FakeStore(), rank=tp - 1, world_size=tp)
    yield build_mesh(tp=tp, pp=1, dp=1, device_type="cpu")
    dist.destroy_process_group()


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", ["gpt2_124m", "gpt2_1b", "gpt2_2b", "gpt2_quickstart"])
def test_the_formula_is_what_torch_counts_in_a_step_of_the_shipped_models(name: str, tp: int) -> None:
    config = compose([f"model={name}", "model.dropout=0", "model.attention_dropout=0", f"tp={tp}"]).model
    batch = 3
    with last_rank_of(tp) as mesh:
        rng = RngStreams(1, mesh, torch.device("cpu"))
        model = build_model(config, tp=mesh.tp, rng=rng, seed=1, device="meta")
        optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.999, eps=1e-8)
        ids = torch.empty(1, config.seq_length + 1, dtype=torch.long, device="meta")
        with FlopCounterMode(display=False) as flops:
            train_step(
                model,
                optimizer,
                [TokenBatch(ids, batch * config.seq_length)] * batch,
                lr=1e-4,
                clip_grad_norm=1.0,
                mesh=mesh,
                autocast=nullcontext,
            )
    expected = model_flops_per_step(config, batch) / tp
    assert flops.get_total_flops() == pytest.approx(expected, rel=1e-9), (
        "1 % is the promise, equality the fact"
    )


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", ["bert_tiny", "bert_336m"])
def test_so_it_is_for_bert_whose_heads_every_rank_has(name: str, tp: int) -> None:
    composed = compose([f"model={name}", "model.dropout=0", "model.attention_dropout=0", f"tp={tp}"])
    config, samples = composed.model, 2
    places = outputs_per_sample(composed)
    assert places is not None
    with last_rank_of(tp) as mesh:
        rng = RngStreams(1, mesh, torch.device("cpu"))
        model = build_model(config, tp=mesh.tp, rng=rng, seed=1, objective="masked_lm", device="meta")
        optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.999, eps=1e-8)
        with FlopCounterMode(display=False) as flops:
            train_step(
                model,
                optimizer,
                [meta_pairs(samples, config.seq_length, places)],
                lr=1e-4,
                clip_grad_norm=1.0,
                mesh=mesh,
                autocast=nullcontext,
            )
    h = config.hidden_size
    # Pooler, order head and the dense layer before the output layer are whole on each rank.
    heads = 3 * samples * (2 * h * h + 2 * 2 * h + places * 2 * h * h)
    expected = (model_flops_per_step(config, samples, places) - heads) / tp + heads
    assert flops.get_total_flops() == pytest.approx(expected, rel=1e-9)

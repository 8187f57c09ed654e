"""Packed documents in a step: what the model is told, and that nothing waits for the device."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from mlm.config.compose import compose
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from mlm.train.objectives.next_token import TokenBatch
from mlm.train.packing import WHOLE, Packing
from mlm.train.step import train_step


def test_positions_count_from_each_documents_beginning_and_keys_begin_there():
    starts = torch.tensor([[0, 0, 0, 3, 3, 5], [0, 1, 1, 1, 1, 1]])
    both = Packing.of(starts, reset_positions=True, reset_attention=True)
    assert both.positions is not None
    assert both.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 3, 4]]
    assert both.first_key is starts
    assert Packing.of(starts, reset_positions=False, reset_attention=False) == WHOLE


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_packed_step_asks_nothing_of_a_device(dropout):
    words = ["model=gpt2_tiny", f"model.dropout={dropout}", f"model.attention_dropout={dropout}"]
    config, mesh = compose(words).model, Mesh.single()
    rng = RngStreams(1, mesh, torch.device("cpu"))
    model = build_model(config, tp=mesh.tp, rng=rng, seed=1, device="meta")
    # On meta a tensor has no value: whatever asks for one (item, if, boolean mask) raises.
    ids = torch.empty(2, config.seq_length + 1, dtype=torch.long, device="meta")
    starts = torch.empty(2, config.seq_length, dtype=torch.long, device="meta")
    packing = Packing.of(starts, reset_positions=True, reset_attention=True)
    share, norm, _ = train_step(
        model,
        AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.999, eps=1e-8),
        [TokenBatch(ids, 4 * config.seq_length, packing)] * 2,
        lr=1e-4,
        clip_grad_norm=1.0,
        mesh=mesh,
        autocast=nullcontext,
    )
    assert share.is_meta
    assert norm.is_meta

"""torch's own count of the operations of a real step, over gloo, against the formula that throughput uses."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mlm.config.compose import compose
from mlm.config.schema import ModelConfig
from mlm.models.blocked_attention import BLOCK
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.rng import RngStreams
from mlm.plan.flops import model_flops_per_step
from mlm.train.objectives.next_token import TokenBatch
from mlm.train.step import train_step
from tests.dist.meshes import mesh_of

BATCH = 2


def model(seq_length: int, attention_dropout: float) -> ModelConfig:
    """The quick-start's GPT with more layers, and a sequence that its attention has to cut."""
    return compose(
        [
            "model=gpt2_quickstart",
            "model.num_layers=3",
            f"model.seq_length={seq_length}",
            "model.dropout=0",
            f"model.attention_dropout={attention_dropout}",
        ]
    ).model


def counted(tp: int, seq_length: int, attention_dropout: float) -> int:
    """Operations that torch sees in one whole step on this rank, by its table of operators."""
    mesh, config = mesh_of(tp, 1), model(seq_length, attention_dropout)
    rng = RngStreams(1, mesh, torch.device("cpu"))
    gpt = build_model(config, tp=mesh.tp, rng=rng, seed=1)
    optimizer = AdamW(parameter_groups(gpt, 0.01), beta1=0.9, beta2=0.999, eps=1e-8)
    ids = torch.randint(0, config.vocab_size, (1, seq_length + 1), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as flops:
        train_step(
            gpt,
            optimizer,
            [TokenBatch(ids, BATCH * seq_length)] * BATCH,
            lr=1e-4,
            clip_grad_norm=1.0,
            mesh=mesh,
            autocast=nullcontext,
        )
    return flops.get_total_flops()


@pytest.mark.parametrize("tp", [1, 2])
def test_a_step_executes_the_formula_where_attention_computes_the_whole_square(pool, tp):
    # With attention dropout a CPU takes torch's attention, whose products torch counts one by one.
    config = model(320, attention_dropout=0.1)
    expected = model_flops_per_step(config, BATCH) / tp
    assert pool(tp).run(counted, tp, 320, 0.1) == [pytest.approx(expected, rel=1e-9)] * tp


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("seq_length", [320, 512])
def test_attention_in_blocks_executes_the_formula_less_the_masked_blocks_it_skips(pool, tp, seq_length):
    config = model(seq_length, attention_dropout=0.0)
    s, b, h = seq_length, BLOCK, config.hidden_size
    # Block k of b queries meets (k + 1) b keys: b^2 (1 + 2 + .. + n) of the square; what is left of s after
    # n whole blocks meets all s keys.
    n, left = divmod(s, b)
    computed = b * b * n * (n + 1) // 2 + left * s
    if left == 0:
        assert computed == s * s / 2 + s * b / 2
    skipped = 3 * BATCH * config.num_layers * 2 * (2 * h) * (s * s - computed)
    expected = (model_flops_per_step(config, BATCH) - skipped) / tp
    assert skipped > 0
    assert pool(tp).run(counted, tp, seq_length, 0.0) == [pytest.approx(expected, rel=1e-9)] * tp

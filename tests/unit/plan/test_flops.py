"""FLOPs against the published throughput of the V100 and A100 runs and against the formulas as printed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mlm.config.compose import compose
from mlm.config.schema import ModelConfig
from mlm.plan.flops import model_flops_per_step, recompute_flops_per_step

TEAM_2020 = [
    # hidden, heads, layers, tp, batch, milliseconds a step, TFLOP/s per GPU: the team's own 2020 table,
    # DGX-2 (V100) at batch 8 and DGX A100 at batch 16, sequence 1024, V 51,200, full recomputation.
    (1920, 15, 24, 1, 8, 1121, 71.9),
    (2304, 18, 30, 2, 8, 1093, 64.2),
    (3072, 24, 36, 4, 8, 1238, 58.5),
    (4096, 32, 42, 8, 8, 1407, 52.2),
    (1920, 15, 24, 1, 16, 1076, 149.8),
    (2304, 18, 30, 2, 16, 1026, 136.8),
    (3072, 24, 36, 4, 16, 1162, 124.7),
    (4096, 32, 42, 8, 16, 1343, 109.3),
]


def gpt(hidden: int, heads: int, layers: int, seq: int = 1024, ffn: int | None = None) -> ModelConfig:
    return ModelConfig(
        name="m",
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        ffn_hidden_size=ffn,
        seq_length=seq,
        vocab_size=50257,
        padded_vocab_size=51200,
    )


@pytest.mark.parametrize(("hidden", "heads", "layers", "gpus", "batch", "ms", "tflops"), TEAM_2020)
def test_recompute_formula_reproduces_the_published_throughput(
    hidden: int, heads: int, layers: int, gpus: int, batch: int, ms: int, tflops: float
) -> None:
    flops = recompute_flops_per_step(gpt(hidden, heads, layers), batch)
    assert flops / (ms / 1e3) / gpus / 1e12 == pytest.approx(tflops, abs=0.2)


@pytest.mark.parametrize(
    ("layers", "hidden", "seq", "batch"), [(72, 3072, 1024, 512), (24, 2304, 2048, 512), (2, 64, 64, 1)]
)
def test_both_counts_equal_the_formulas_as_printed(layers: int, hidden: int, seq: int, batch: int) -> None:
    B, s, l, h, V = (Fraction(n) for n in (batch, seq, layers, hidden, 51200))  # noqa: E741 (the paper's letters)
    m = gpt(hidden, 4, layers, seq)
    assert model_flops_per_step(m, batch) == 72 * B * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))
    assert recompute_flops_per_step(m, batch) == 96 * B * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h))


def test_a_narrower_mlp_saves_exactly_its_two_products() -> None:
    wide, narrow, tokens = gpt(256, 4, 3), gpt(256, 4, 3, ffn=512), 5 * 1024
    saved = 3 * tokens * 3 * 2 * (2 * 256 * 512)  # 3 passes, 3 layers, 2 products, 2 operations
    assert model_flops_per_step(wide, 5) - model_flops_per_step(narrow, 5) == saved


def test_padding_is_computed_and_so_counted() -> None:
    m = compose(["model=gpt2_tiny"]).model
    assert (m.vocab_size, m.padded_vocab_size) == (257, 264)
    m.padded_vocab_size = 257
    unpadded = model_flops_per_step(m, 1)
    m.padded_vocab_size = 264
    assert model_flops_per_step(m, 1) - unpadded == 3 * 64 * 2 * 64 * 7

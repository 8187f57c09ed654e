"""FLOPs against published throughput of the V100 and A100 runs and against the formulas as printed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mlm.config.compose import compose
from mlm.config.schema import ModelConfig
from mlm.plan.flops import Recompute, hardware_flops_per_step, model_flops_per_step
from mlm.plan.parameters import count_parameters

TEAM_2020 = [
    # hidden, heads, layers, tp, batch, milliseconds a step, scaling in %, TFLOP/s per GPU: the team's table
    # of 2020, DGX-2 (V100) at batch 8 and DGX A100 at batch 16, sequence 1024, V 51,200, full recomputation.
    (1920, 15, 24, 1, 8, 1121, 100.0, 71.9),
    (2304, 18, 30, 2, 8, 1093, 89.6, 64.2),
    (3072, 24, 36, 4, 8, 1238, 82.5, 58.5),
    (4096, 32, 42, 8, 8, 1407, 74.3, 52.2),
    (1920, 15, 24, 1, 16, 1076, 100.0, 149.8),
    (2304, 18, 30, 2, 16, 1026, 91.7, 136.8),
    (3072, 24, 36, 4, 16, 1162, 84.5, 124.7),
    (4096, 32, 42, 8, 16, 1343, 74.7, 109.3),
]

SC21_TABLE_1 = [
    # heads, hidden, layers, GPUs, batch, TFLOP/s per GPU, aggregate PFLOP/s, parameters in billions:
    # Narayanan et al. 2021, table 1, A100, sequence 2048, V 51,200, full recomputation.
    (24, 2304, 24, 32, 512, 137, 4.4, 1.7),
    (32, 3072, 30, 64, 512, 138, 8.8, 3.6),
    (32, 4096, 36, 128, 512, 142, 18.2, 7.5),
    (48, 6144, 40, 256, 1024, 135, 34.6, 18.4),
    (80, 10240, 60, 1024, 1792, 140, 143.8, 76.1),
    (128, 16384, 96, 1920, 2160, 155, 297.4, 310.1),
    (160, 25600, 128, 3072, 3072, 163, 502.0, 1008.0),
]

RECOMPUTE_PAPER = [
    # heads, hidden, layers, batch, GPUs, seconds a step, MFU, HFU as published, HFU by executed products:
    # Korthikanti et al. 2022, table 5, A100 (312 TFLOP/s), sequence 2048, V 51,200, selective recomputation.
    (64, 6144, 48, 4, 8, 1.10, 41.5, 43.7, 42.4),
    (96, 12288, 96, 64, 64, 13.75, 51.4, 52.8, 51.9),
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


@pytest.mark.parametrize(("hidden", "heads", "layers", "gpus", "batch", "ms", "scaling", "tflops"), TEAM_2020)
def test_full_recomputation_reproduces_the_teams_throughput_and_scaling_of_2020(
    hidden: int, heads: int, layers: int, gpus: int, batch: int, ms: int, scaling: float, tflops: float
) -> None:
    model = gpt(hidden, heads, layers)
    flops = hardware_flops_per_step(model, batch, "full")
    assert flops / (ms / 1e3) / gpus / 1e12 == pytest.approx(tflops, abs=0.2)
    # Their scaling compares parameters per second and GPU with the single GPU's, not FLOPs.
    alone_ms, alone = 1121 if batch == 8 else 1076, gpt(1920, 15, 24)
    ratio = count_parameters(model).total / count_parameters(alone).total
    assert ratio * alone_ms / ms / gpus * 100 == pytest.approx(scaling, abs=0.15)


@pytest.mark.parametrize(
    ("heads", "hidden", "layers", "gpus", "batch", "tflops", "aggregate", "billions"), SC21_TABLE_1
)
def test_the_formulas_own_table_is_consistent_with_the_step_times_it_implies(
    heads: int,
    hidden: int,
    layers: int,
    gpus: int,
    batch: int,
    tflops: int,
    aggregate: float,
    billions: float,
) -> None:
    """The table has no step times: its throughput per GPU, its aggregate and ours must imply one another."""
    model = gpt(hidden, heads, layers, seq=2048)
    assert count_parameters(model).total / 1e9 == pytest.approx(billions, rel=0.03)
    step_s = hardware_flops_per_step(model, batch, "full") / (tflops * 1e12 * gpus)
    # Independent of the formula's code: 8 FLOPs per parameter and token, attention's share on top.
    attention = 1 + 2048 / (6 * hidden)
    by_parameters = 8 * 12 * layers * hidden**2 * batch * 2048 * attention + 6 * batch * 2048 * hidden * 51200
    assert by_parameters / step_s / 1e15 == pytest.approx(aggregate, rel=0.006)


@pytest.mark.parametrize(
    ("heads", "hidden", "layers", "batch", "gpus", "seconds", "mfu", "published", "executed"), RECOMPUTE_PAPER
)
def test_mfu_and_both_conventions_of_hfu_of_the_recomputation_paper(
    heads: int,
    hidden: int,
    layers: int,
    batch: int,
    gpus: int,
    seconds: float,
    mfu: float,
    published: float,
    executed: float,
) -> None:
    model = gpt(hidden, heads, layers, seq=2048)
    available = seconds * gpus * 312e12 / 100  # for per cent

    needed = model_flops_per_step(model, batch)
    assert needed / available == pytest.approx(mfu, abs=0.2)  # the table rounds its seconds to 0.5 %
    assert hardware_flops_per_step(model, batch, "selective") / available == pytest.approx(executed, abs=0.1)
    # Theirs counts s/3h where the executed products come to 2s/9h: three times the recomputed forward.
    again = hardware_flops_per_step(model, batch, "selective") - needed
    assert (needed + 3 * again) / available == pytest.approx(published, abs=0.2)


def test_an_epoch_of_the_8b_as_the_paper_timed_it_is_13_8_pflops_and_not_the_headlines_15_1() -> None:
    model = compose(["model=gpt2_8b"]).model
    step_s = 2.10 * 86400 / 68507  # table 2: days an epoch over iterations an epoch
    pflops = hardware_flops_per_step(model, 512, "full") / step_s / 1e15
    assert pflops == pytest.approx(13.8, abs=0.05)
    assert 15.1 / pflops == pytest.approx(1.09, abs=0.01)


@pytest.mark.parametrize(
    ("layers", "hidden", "seq", "batch"), [(72, 3072, 1024, 512), (24, 2304, 2048, 512), (2, 64, 64, 1)]
)
def test_all_counts_equal_the_formulas_as_printed(layers: int, hidden: int, seq: int, batch: int) -> None:
    B, s, l, h, V = (Fraction(n) for n in (batch, seq, layers, hidden, 51200))  # noqa: E741 (the paper's letters)
    m = gpt(hidden, 4, layers, seq)
    model = 72 * B * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))
    executed: dict[Recompute, Fraction] = {
        "none": model,
        "selective": 72 * B * s * l * h**2 * (1 + 2 * s / (9 * h) + V / (12 * l * h)),
        "full": 96 * B * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h)),
    }
    assert model_flops_per_step(m, batch) == model
    for recompute, expected in executed.items():
        assert hardware_flops_per_step(m, batch, recompute) == expected


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

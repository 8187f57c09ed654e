"""Parameter counts against published ones, against the closed form and against a list of shapes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.config.compose import compose
from mlm.config.schema import ModelConfig
from mlm.plan.parameters import count_parameters, count_real_parameters

PUBLISHED_PADDED = {
    # Paper, Table 1 (1.2B, 2.5B, 4.2B, 8.3B) at 51,200 rows and sequence 1024.
    "gpt2_1b": 1_213_479_936,
    "gpt2_2b": 2_490_408_960,
    "gpt2_4b": 4_199_109_120,
    "gpt2_8b": 8_317_040_640,
}
PUBLISHED_REAL = {
    # Hugging Face's gpt2, gpt2-large and gpt2-xl; the 8.3B at 50,257.
    "gpt2_124m": 124_439_808,
    "gpt2_774m": 774_030_080,
    "gpt2_1558m": 1_557_611_200,
    "gpt2_8b": 8_314_143_744,
}
FROM_SHAPES = {
    # Padded and real, from the shapes below.
    "gpt2_tiny": (121_088, 120_640),
    "gpt2_quickstart": (1_307_904, 1_307_904),
    "gpt2_shakespeare_char": (804_224, 804_096),
    "gpt2_small_cpu": (64_306_176, 63_823_360),
    "gpt2_355m": (355_788_800, 354_823_168),
    "gpt2_124m": (124_475_904, 124_439_808),
    "gpt2_774m": (774_090_240, 774_030_080),
    "gpt2_1558m": (1_557_686_400, 1_557_611_200),
    "gpt2_1b": (1_213_479_936, 1_212_031_488),
    "gpt2_2b": (2_490_408_960, 2_488_598_400),
    "gpt2_4b": (4_199_109_120, 4_196_936_448),
    "gpt2_8b": (8_317_040_640, 8_314_143_744),
}


def model(name: str) -> ModelConfig:
    return compose([f"model={name}"]).model


def shapes(m: ModelConfig, vocab: int, tp: int) -> list[tuple[int, ...]]:
    """Every tensor of one rank, written out one by one."""
    h, ffn = m.hidden_size, m.ffn_hidden_size or 4 * m.hidden_size
    norm = [(h,), (h,)] if m.bias else [(h,)]
    layer = [*norm, (3 * h // tp, h), (h, h // tp), *norm, (ffn // tp, h), (h, ffn // tp)]
    if m.bias:
        layer += [(3 * h // tp,), (h,), (ffn // tp,), (h,)]
    head = [] if m.tie_embeddings else [(vocab // tp, h)]
    return [(vocab // tp, h), (m.seq_length, h), *layer * m.num_layers, *norm, *head]


@pytest.mark.parametrize("name", PUBLISHED_PADDED)
def test_padded_count_equals_the_paper_s(name: str) -> None:
    assert count_parameters(model(name)).total == PUBLISHED_PADDED[name]


@pytest.mark.parametrize("name", PUBLISHED_REAL)
def test_real_count_equals_the_published_one(name: str) -> None:
    assert count_real_parameters(model(name)).total == PUBLISHED_REAL[name]


@pytest.mark.parametrize("name", FROM_SHAPES)
def test_both_counts_of_every_shipped_model_are_held_exactly(name: str) -> None:
    padded, real = FROM_SHAPES[name]
    assert count_parameters(model(name)).total == padded
    assert count_real_parameters(model(name)).total == real


def test_one_rank_of_the_largest_at_tp_8_holds_1043549184() -> None:
    assert count_parameters(model("gpt2_8b"), tp=8).total == 1_043_549_184


@given(
    layers=st.integers(1, 5),
    heads=st.sampled_from([4, 8, 12]),
    head_dim=st.integers(1, 9),
    tp=st.sampled_from([1, 2, 4]),
    ffn=st.none() | st.integers(1, 30).map(lambda n: 4 * n),
    tied=st.booleans(),
    bias=st.booleans(),
)
def test_the_count_is_the_sum_over_all_tensors_tied_or_not_with_or_without_biases(
    layers: int, heads: int, head_dim: int, tp: int, ffn: int | None, tied: bool, bias: bool
) -> None:
    m = ModelConfig(
        name="m",
        num_layers=layers,
        hidden_size=heads * head_dim,
        num_heads=heads,
        ffn_hidden_size=ffn,
        seq_length=17,
        vocab_size=61,
        padded_vocab_size=64,
        tie_embeddings=tied,
        bias=bias,
    )
    assert count_parameters(m, tp).total == sum(prod(shape) for shape in shapes(m, 64, tp))
    assert count_real_parameters(m).total == sum(prod(shape) for shape in shapes(m, 61, 1))


def test_kinds_of_the_largest_add_up_from_the_closed_form() -> None:
    count, h, layers = count_parameters(model("gpt2_8b")), 3072, 72
    assert count.token_embedding == 51200 * h
    assert count.position_embedding == 1024 * h
    assert count.attention == layers * (4 * h * h + 4 * h)
    assert count.mlp == layers * (8 * h * h + 5 * h)
    assert count.layernorm == layers * 4 * h + 2 * h
    assert count.output_layer == 0


def test_a_degree_that_does_not_divide_is_never_rounded() -> None:
    with pytest.raises(ValueError, match="tp=5"):
        count_parameters(model("gpt2_8b"), tp=5)
    with pytest.raises(ValueError, match="vocabulary"):
        count_parameters(replace(model("gpt2_tiny"), padded_vocab_size=257), tp=2)

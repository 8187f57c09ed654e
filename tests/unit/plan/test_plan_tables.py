"""Static memory, rank groups and the table of peaks."""

from __future__ import annotations

from math import isclose

import pytest

from mlm.config.compose import compose
from mlm.plan.groups import dp_groups, pp_groups, tp_groups
from mlm.plan.hardware import PEAKS, peak_tflops
from mlm.plan.memory import static_memory
from mlm.plan.parameters import count_parameters


@pytest.mark.parametrize(("name", "tp"), [("gpt2_8b", 8), ("gpt2_8b", 1), ("gpt2_tiny", 2)])
def test_a_rank_holds_sixteen_bytes_per_parameter(name: str, tp: int) -> None:
    model = compose([f"model={name}"]).model
    parameters, memory = count_parameters(model, tp).total, static_memory(model, tp)
    assert (memory.weights_bytes, memory.gradients_bytes) == (4 * parameters, 4 * parameters)
    assert memory.optimizer_bytes == 8 * parameters
    assert memory.total_bytes == 16 * parameters


def test_the_largest_model_of_the_paper_needs_15_5_gib_per_rank_at_tp_8() -> None:
    total = static_memory(compose(["model=gpt2_8b"]).model, 8).total_bytes
    assert isclose(total / 2**30, 15.55, abs_tol=0.01)


def test_the_paper_s_512_gpus_are_64_groups_of_8_neighbours_and_8_of_64_strided() -> None:
    tp, dp = tp_groups(8, 1, 64), dp_groups(8, 1, 64)
    assert len(tp) == 64
    assert tp[0] == list(range(8))
    assert tp[63] == list(range(504, 512))
    assert len(dp) == 8
    assert dp[3] == list(range(3, 512, 8))


@pytest.mark.parametrize(("tp", "pp", "dp"), [(1, 1, 1), (4, 1, 1), (2, 3, 4), (2, 1, 2), (1, 2, 3)])
def test_every_kind_of_group_parts_the_ranks_and_two_kinds_share_at_most_one(
    tp: int, pp: int, dp: int
) -> None:
    kinds = [tp_groups(tp, pp, dp), dp_groups(tp, pp, dp), pp_groups(tp, pp, dp)]
    for groups, size in zip(kinds, (tp, dp, pp), strict=True):
        assert sorted(rank for group in groups for rank in group) == list(range(tp * pp * dp))
        assert {len(group) for group in groups} == {size}
    for first, second in [(0, 1), (0, 2), (1, 2)]:
        for a in kinds[first]:
            assert all(len(set(a) & set(b)) <= 1 for b in kinds[second])


def test_boards_of_one_chip_are_told_apart() -> None:
    assert peak_tflops("NVIDIA H100 80GB HBM3", "bf16") == 989.5
    assert peak_tflops("NVIDIA H100 PCIe", "bf16") == 756.5
    assert peak_tflops("Tesla V100-SXM3-32GB-H", "fp16") == 130.0


@pytest.mark.parametrize(
    "name", ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100", "H100", "", "AMD Instinct MI300X", "cpu"]
)
def test_an_unknown_name_has_no_peak(name: str) -> None:
    assert peak_tflops(name, "bf16") is None


def test_volta_and_turing_have_no_bf16() -> None:
    assert peak_tflops("Tesla V100-SXM2-32GB", "bf16") is None
    assert peak_tflops("Tesla T4", "bf16") is None


def test_a_misspelt_dtype_is_not_an_unknown_device() -> None:
    with pytest.raises(ValueError, match="float32"):
        peak_tflops("NVIDIA L4", "float32")


def test_sixteen_bit_products_are_faster_than_fp32_on_every_device() -> None:
    for name, peak in PEAKS.items():
        assert peak.fp32 is None or peak.fp16 > 1.9 * peak.fp32, name
        assert peak.bf16 in (None, peak.fp16), name


@pytest.mark.parametrize(
    ("name", "units", "operations", "boost_ghz"),
    [
        # Streaming multiprocessors, fp16 operations of one per cycle (accumulated in fp32), boost clock: the
        # vendor's architecture papers, not its TFLOP/s.
        ("Tesla V100-SXM2-32GB", 80, 1024, 1.530),
        ("Tesla V100-PCIE-16GB", 80, 1024, 1.380),
        ("Tesla V100S-PCIE-32GB", 80, 1024, 1.597),
        ("Tesla T4", 40, 1024, 1.590),
        ("NVIDIA A100-SXM4-80GB", 108, 2048, 1.410),
        ("NVIDIA A30", 56, 2048, 1.440),
        ("NVIDIA A40", 84, 1024, 1.740),
        ("NVIDIA A10", 72, 1024, 1.695),
        ("NVIDIA L4", 58, 1024, 2.040),
        ("NVIDIA L40", 142, 512, 2.490),
        ("NVIDIA L40S", 142, 1024, 2.490),
        ("NVIDIA H100 80GB HBM3", 132, 4096, 1.830),
        ("NVIDIA H100 PCIe", 114, 4096, 1.620),
        ("NVIDIA H200 NVL", 132, 4096, 1.545),
        ("NVIDIA B200", 148, 8192, 1.860),
        ("NVIDIA RTX A6000", 84, 1024, 1.800),
        ("NVIDIA RTX 6000 Ada Generation", 142, 1024, 2.505),
        ("NVIDIA GeForce RTX 3090", 82, 512, 1.695),
        ("NVIDIA GeForce RTX 4090", 128, 512, 2.520),
        ("NVIDIA GeForce RTX 5090", 170, 512, 2.407),
    ],
)
def test_the_stated_peak_is_what_the_units_do_at_their_boost_clock(
    name: str, units: int, operations: int, boost_ghz: float
) -> None:
    assert peak_tflops(name, "fp16") == pytest.approx(units * operations * boost_ghz / 1e3, rel=0.01)

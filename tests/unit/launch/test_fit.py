from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mlm.launch.fit import gib, problems, shipped_models
from mlm.launch.machine import Machine
from tests.unit.launch.machines import GIB, config, gpt2_8b, gpu_machine

RANK_BYTES = 1_043_549_184 * 16
"""One of 8 ranks of the paper's 8.3B: weights, gradients and two moments, 4 bytes each."""


@pytest.mark.parametrize(("memory", "refused"), [(8 * RANK_BYTES, False), (8 * RANK_BYTES - 1, True)])
def test_on_cpu_all_ranks_share_the_memory(memory: int, refused: bool) -> None:
    machine = Machine(cores=8, memory_bytes=memory)
    assert bool(problems(config(tp=8, of_model=gpt2_8b()), "cpu", 8, machine)) == refused


@pytest.mark.parametrize(("gibs", "refused"), [(16, False), (15, True)])
def test_on_cuda_one_rank_must_fit_one_device(gibs: int, refused: bool) -> None:
    assert 15 * GIB < RANK_BYTES < 16 * GIB
    machine = gpu_machine(8, gib=gibs)
    assert bool(problems(config(tp=8, of_model=gpt2_8b()), "cuda", 8, machine)) == refused


def test_the_suggested_model_exists_and_fits() -> None:
    names = {path.stem for path in (Path(__file__).parents[3] / "configs" / "model").glob("*.yaml")}
    assert {model.name for model in shipped_models()} == names - {"from_checkpoint"}
    for machine in (Machine(2, 16 * GIB), Machine(2, GIB), Machine(1, GIB // 4)):
        (problem,) = problems(config(tp=8, of_model=gpt2_8b()), "cpu", 8, machine)
        words = dict(word.split("=") for word in problem.remedy.split() if word.startswith(("model=", "tp=")))
        assert words["model"] in names
        assert words["model"].startswith("gpt2_"), "another architecture is no smaller one of the same"
        assert int(words["tp"]) <= machine.cores


def test_the_suggestion_for_small_devices_is_the_largest_model_that_leaves_room() -> None:
    (problem,) = problems(config(tp=1, of_model=gpt2_8b()), "cuda", 1, gpu_machine(1, gib=16))
    shapes = {}
    for path in (Path(__file__).parents[3] / "configs" / "model").glob("gpt2_*.yaml"):
        m = yaml.safe_load(path.read_text())
        h, n, s, v = (m[key] for key in ("hidden_size", "num_layers", "seq_length", "padded_vocab_size"))
        shapes[path.stem] = 16 * (n * (12 * h * h + 13 * h) + v * h + s * h + 2 * h)  # GPT's closed form
    largest = max((size, name) for name, size in shapes.items() if size <= 0.6 * 16 * GIB)[1]
    assert f"model={largest} tp=1 fits here" in problem.remedy


def test_a_degree_that_does_not_divide_is_no_matter_of_size() -> None:
    assert problems(config(tp=7, of_model=gpt2_8b()), "cpu", 7, Machine(1, 1)) == []


def test_bytes_are_shown_in_binary_units() -> None:
    assert gib(RANK_BYTES) == "15.6 GiB"
    assert gib(3 << 20) == "3.0 MiB"

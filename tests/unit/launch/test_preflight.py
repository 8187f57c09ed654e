"""The decision table of a launch over made-up machines and environments."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mlm.config.schema import TrainConfig
from mlm.errors import Problem
from mlm.launch.machine import Machine
from mlm.launch.preflight import Launch, preflight
from tests.unit.launch.machines import GIB, LAPTOP, config, gpt2_8b, gpu_machine
from tests.unit.launch.test_step import SRUN, TORCHRUN

NOW = datetime(2026, 3, 1, 12, 30, 5)
VOLTA = gpu_machine(8, gib=32, capability=(7, 0))


def decide(
    asked: TrainConfig,
    machine: Machine,
    environment: dict[str, str] | None = None,
    packages: tuple[str, ...] = ("wandb",),
    cwd: Path = Path("/tmp"),
) -> tuple[Launch, list[Problem]]:
    return preflight(
        asked, machine, environment or {}, cwd=cwd, now=NOW, has_package=lambda name: name in packages
    )


@pytest.mark.parametrize(
    ("asked", "machine", "expected"),
    [
        # device, processes, dp, threads, precision
        ({}, LAPTOP, ("cpu", 1, 1, 2, "fp32")),
        ({"tp": 2}, LAPTOP, ("cpu", 2, 1, 1, "fp32")),
        ({"tp": 2, "dp": 2}, LAPTOP, ("cpu", 4, 2, 1, "fp32")),
        ({"tp": 2, "threads": 3}, LAPTOP, ("cpu", 2, 1, 3, "fp32")),
        ({"precision": "bf16"}, LAPTOP, ("cpu", 1, 1, 2, "bf16")),
        ({"tp": 8}, gpu_machine(8), ("cuda", 8, 1, 8, "bf16")),
        ({"tp": 2}, gpu_machine(8), ("cuda", 8, 4, 8, "bf16")),
        ({"tp": 2, "dp": 1}, gpu_machine(8), ("cuda", 2, 1, 32, "bf16")),
        ({"tp": 2, "device": "cpu"}, gpu_machine(8), ("cpu", 2, 1, 32, "fp32")),
        ({"tp": 2}, VOLTA, ("cuda", 8, 4, 8, "fp16")),
        ({"tp": 2, "precision": "fp32"}, gpu_machine(2), ("cuda", 2, 1, 32, "fp32")),
        ({"tp": 2}, gpu_machine(8, cuda=None), ("cpu", 2, 1, 32, "fp32")),
    ],
)
def test_device_processes_threads_and_precision(
    asked: dict[str, Any], machine: Machine, expected: tuple[Any, ...]
) -> None:
    launch, problems = decide(config(**asked), machine)
    assert problems == []
    assert (launch.device, launch.processes, launch.dp, launch.threads, launch.precision) == expected
    assert launch.local_processes == launch.processes


@pytest.mark.parametrize(
    ("asked", "machine", "environment", "said"),
    [
        (
            {"device": "cuda"},
            LAPTOP,
            {},
            "launch.device=cuda cannot be used: this machine shows no CUDA device",
        ),
        ({"device": "cuda"}, gpu_machine(2, cuda=None), {}, "built without CUDA"),
        (
            {"tp": 8},
            gpu_machine(4),
            {},
            "tp=8 needs 8 CUDA devices, one for each process, and this machine shows 4",
        ),
        ({"tp": 2, "dp": 4}, gpu_machine(4), {}, "tp=2 dp=4 needs 8 CUDA devices"),
        ({"precision": "bf16"}, VOLTA, {}, "compute capability 8.0"),
        ({"logger": "tensorboard"}, LAPTOP, {}, "pip install tensorboard"),
        ({"mode": "join"}, LAPTOP, {}, "launch=join needs a step"),
        ({"tp": 3}, LAPTOP, TORCHRUN, "4 processes from torchrun are not a multiple of tp*pp=3"),
        ({"tp": 2, "dp": 1}, LAPTOP, TORCHRUN, "are not tp*pp*dp=2"),
        ({"tp": 4}, gpu_machine(1), TORCHRUN, "2 processes from torchrun needs 2 CUDA devices"),
    ],
)
def test_refusals(asked: dict[str, Any], machine: Machine, environment: dict[str, str], said: str) -> None:
    _, problems = decide(config(**asked), machine, environment)
    assert len(problems) == 1, problems
    assert said in str(problems[0])
    assert problems[0].remedy


@pytest.mark.parametrize(
    ("asked", "machine", "said"),
    [
        ({"tp": 4}, LAPTOP, "4 processes on 2 cores"),
        ({"tp": 3}, gpu_machine(8), "2 of 8 CUDA devices stay idle"),
        ({}, gpu_machine(8, cuda=None), "built without CUDA: training on CPU beside 8 x NVIDIA H100"),
    ],
)
def test_warnings_forbid_nothing(asked: dict[str, Any], machine: Machine, said: str) -> None:
    launch, problems = decide(config(**asked), machine)
    assert problems == []
    (warning,) = launch.warnings
    assert said in warning


def test_joining_takes_the_world_that_was_started() -> None:
    launch, problems = decide(config(tp=2), gpu_machine(2), TORCHRUN)
    assert problems == []
    assert (launch.processes, launch.local_processes, launch.dp, launch.device) == (4, 2, 2, "cuda")
    assert launch.step is not None
    assert launch.step.rank == 3


def test_under_srun_every_task_may_see_its_own_device_only() -> None:
    launch, problems = decide(config(tp=4), gpu_machine(1), SRUN)
    assert problems == []
    assert launch.local_processes == 2


def test_a_model_too_large_for_the_memory_is_refused_with_one_that_is_not() -> None:
    _, (problem,) = decide(config(tp=8, of_model=gpt2_8b()), LAPTOP)
    # 8 ranks x 1,043,549,184 parameters x 16 bytes, the paper's model at the paper's degree
    assert f"{8 * 1_043_549_184 * 16 / GIB:.1f} GiB" in problem.wrong
    assert "16.0 GiB available" in problem.wrong
    assert "launch=dry_run" in problem.remedy
    assert "model=gpt2_small_cpu tp=2 fits here" in problem.remedy


def test_a_model_too_large_for_a_device_names_the_degree_that_would_do() -> None:
    _, (problem,) = decide(config(tp=2, dp=1, of_model=gpt2_8b()), gpu_machine(8, gib=40))
    assert "NVIDIA H100 80GB HBM3 has 40.0 GiB" in problem.wrong
    # tp=4 would leave 9 of 40 GiB for activations; 3, 6 and 12 divide the heads but not 51,200
    assert "tp=8 would fit on such devices" in problem.remedy
    assert decide(config(tp=8, dp=1, of_model=gpt2_8b()), gpu_machine(8, gib=80))[1] == []


def test_on_several_machines_each_is_measured_alone() -> None:
    environment = TORCHRUN | {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    launch, problems = decide(config(tp=8, of_model=gpt2_8b()), gpu_machine(1), environment)
    assert problems == []
    assert launch.processes == 8


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    asked = config(
        tp=8,
        device="cuda",
        mode="join",
        logger="tensorboard",
        run_dir=str(tmp_path / "file" / "run"),
        of_model=gpt2_8b(),
    )
    _, problems = decide(asked, LAPTOP)
    wheres = [problem.where for problem in problems]
    assert wheres == [
        "launch=join",
        "launch.device=cuda",
        "gpt2_8b at tp=8",
        f"run_dir={tmp_path}/file/run",
        "logger=tensorboard",
    ]


@pytest.mark.parametrize("degrees", [{"tp": 0}, {"tp": -2}, {"dp": 0}])
def test_impossible_degrees_are_left_to_the_configurations_own_check(degrees: dict[str, int]) -> None:
    launch, _ = decide(config(**degrees), LAPTOP)
    assert launch.processes == 1


def test_the_run_directory_is_named_by_model_and_time(tmp_path: Path) -> None:
    launch, _ = decide(config(), LAPTOP, cwd=tmp_path)
    assert launch.run_dir == tmp_path / "runs" / "tiny-20260301-123005"
    assert list(tmp_path.iterdir()) == [], "deciding touches nothing"

"""launch=slurm: which nodes and tasks a configuration means, from what Slurm tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlm.config.schema import TrainConfig
from mlm.errors import LaunchError, Problem
from mlm.launch.machine import Machine
from mlm.launch.slurm import queue
from mlm.launch.slurm.environment import find_allocation, find_task
from mlm.launch.slurm.plan import SlurmPlan, plan
from tests.unit.launch.machines import LAPTOP, config
from tests.unit.launch.slurm_commands import FakeSlurm
from tests.unit.launch.test_step import SALLOC_SHELL, SRUN

LOGIN = Machine(cores=8, memory_bytes=1 << 35, torch_version="2.13", torch_cuda="12.8", host="login")
SINFO = "gpu*|64|gpu:h100:8(S:0-1)\nmixed|10|gpu:a100:4\nmixed|4|gpu:a100:8(S:0,1)\ncpu|100|(null)"
INSIDE = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_JOB_CPUS_PER_NODE": "64(x4)",
    "SLURM_TASKS_PER_NODE": "1(x4)",
}
GPUS = {"SLURM_GPUS_PER_NODE": "h100:8"}


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    fake = FakeSlurm(tmp_path)
    for name in ("sbatch", "srun"):
        fake.command(name)
    fake.command("sinfo", prints=SINFO)
    fake.command("squeue", prints="N/A")
    return fake


def of(
    slurm: FakeSlurm,
    environment: dict[str, str] | None = None,
    *,
    tp: int = 8,
    dp: int | None = None,
    machine: Machine = LOGIN,
    threads: int | None = None,
    device: str = "auto",
    per_node: int | None = None,
    partition: str | None = None,
) -> tuple[SlurmPlan, list[Problem], list[str]]:
    asked: TrainConfig = config(tp=tp, dp=dp, mode="slurm", device=device, threads=threads)
    launch = replace(asked.launch, devices_per_node=per_node, partition=partition)
    return plan(replace(asked, launch=launch), machine, slurm.environment | (environment or {}))


def sound(slurm: FakeSlurm, *arguments: object, **fields: object) -> SlurmPlan:
    found, problems, _ = of(slurm, *arguments, **fields)  # type: ignore[arg-type]
    assert problems == []
    return found


def refused(slurm: FakeSlurm, *arguments: object, **fields: object) -> str:
    _, problems, _ = of(slurm, *arguments, **fields)  # type: ignore[arg-type]
    return "\n".join(map(str, problems))


@pytest.mark.parametrize(
    ("tp", "dp", "nodes", "tasks_per_node"), [(8, 64, 64, 8), (8, 1, 1, 8), (2, 1, 1, 2), (2, 12, 3, 8)]
)
def test_a_new_job_gets_the_nodes_that_its_processes_fill(
    slurm: FakeSlurm, tp: int, dp: int, nodes: int, tasks_per_node: int
) -> None:
    found = sound(slurm, tp=tp, dp=dp)
    assert (found.nodes, found.tasks_per_node, found.device) == (nodes, tasks_per_node, "cuda")
    assert found.tasks == tp * dp
    assert found.allocation is None


def test_a_partition_of_the_environment_counts_and_the_one_that_is_named_counts_more(
    slurm: FakeSlurm,
) -> None:
    by_default = {"SBATCH_PARTITION": "mixed"}
    found, problems, warnings = of(slurm, by_default, tp=4, dp=4)
    assert (found.nodes, found.tasks_per_node, problems) == (4, 4, [])
    assert "nodes have 4 or 8 GPUs: 4 of each are used" in warnings[0]
    assert sound(slurm, by_default, tp=4, dp=4, partition="gpu").nodes == 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ["dp is not set, and outside an allocation", "use dp=N for N*8 processes"]),
        ({"dp": 65}, ["tp*pp*dp=520 needs 65 nodes of 8, and partition gpu has 64"]),
        ({"dp": 1, "partition": "cpus"}, ["launch.partition=cpus is no partition", "use cpu, gpu or mixed"]),
        (
            {"dp": 1, "partition": "cpu"},
            ["does not tell how many CPU processes", "launch.devices_per_node=NUM"],
        ),
        ({"dp": 1, "machine": LAPTOP}, ["torch 2.13.0+cpu, a build without CUDA"]),
        ({"dp": 1, "machine": LAPTOP, "device": "cuda"}, ["launch.device=cuda cannot be used"]),
        ({"dp": 1, "per_node": 9}, ["launch.devices_per_node=9 is more than the 8 GPUs"]),
        ({"tp": 2, "dp": 5}, ["10 processes, which do not divide into nodes of 8", "use dp=4 or 8"]),
    ],
)
def test_what_a_new_job_cannot_be_is_refused_with_its_numbers(
    slurm: FakeSlurm, fields: dict[str, object], said: list[str]
) -> None:
    text = refused(slurm, **fields)
    for words in said:
        assert words in text, text


def test_without_slurm_one_problem_says_so(tmp_path: Path) -> None:
    nothing = FakeSlurm(tmp_path)
    nothing.environment["PATH"] = str(nothing.folder)
    _, problems, _ = of(nothing, dp=2)
    (problem,) = problems
    assert problem.where == "launch=slurm"
    assert "needs sbatch, which is not on the PATH" in problem.wrong
    assert "needs srun" in refused(nothing, INSIDE, dp=2)


def test_dp_is_as_large_as_the_allocation_allows(slurm: FakeSlurm) -> None:
    found = sound(slurm, INSIDE | GPUS)
    assert (found.nodes, found.tasks_per_node, found.dp, found.device) == (4, 8, 4, "cuda")
    assert found.cores_per_task == 8, "the 64 cores of a node shared out"
    found, problems, warnings = of(slurm, INSIDE | GPUS, tp=3)
    # 10 groups of 3 would leave 30 processes, which nodes of 8 do not hold evenly; 8 groups are 3 full nodes.
    assert (found.dp, found.nodes, problems) == (8, 3, [])
    assert "8 of 32 devices of the allocation stay idle" in warnings
    assert any("tp groups lie across nodes" in warning for warning in warnings)


def test_an_allocation_that_is_too_small_is_refused_with_its_numbers(slurm: FakeSlurm) -> None:
    text = refused(slurm, INSIDE | GPUS, dp=5)
    assert "tp*pp*dp=40 needs 5 nodes of 8, and job 77 has 4" in text
    assert "allocate with --nodes=5" in text
    text = refused(slurm, INSIDE | GPUS, dp=4, threads=9)
    assert "needs 72 cores a node for 8 processes of 9 threads, and job 77 has 64" in text


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({"SLURM_GPUS_PER_NODE": "8"}, 8),
        ({"SLURM_GPUS_PER_NODE": "h100:4,a100:2"}, 6),
        ({"SLURM_GPUS_ON_NODE": "2"}, 2),
        ({}, None),
    ],
)
def test_the_gpus_of_an_allocation(environment: dict[str, str], gpus: int | None) -> None:
    allocation = find_allocation(INSIDE | environment)
    assert allocation is not None
    assert allocation.gpus_per_node == gpus


def test_gpus_that_only_the_queue_knows_are_found_there(slurm: FakeSlurm) -> None:
    slurm.command("squeue", prints="gres:gpu:h100:4")
    found = sound(slurm, INSIDE, tp=4)
    assert (found.device, found.tasks_per_node, found.dp) == ("cuda", 4, 4)


def test_tasks_count_as_processes_of_a_node_only_where_they_were_asked_for(slurm: FakeSlurm) -> None:
    cpu = {"device": "cpu", "tp": 2}
    assert "does not tell how many CPU processes" in refused(slurm, INSIDE, **cpu)
    asked = INSIDE | {"SLURM_NTASKS": "16", "SLURM_TASKS_PER_NODE": "4(x4)"}
    assert sound(slurm, asked, **cpu).tasks_per_node == 4
    # In `srun --pty bash` the tasks and cores are the shell's.
    shell = asked | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_CPUS_PER_TASK": "2"}
    shell |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1"}
    allocation = find_allocation(shell)
    assert allocation is not None
    assert (allocation.in_step, allocation.tasks_per_node, allocation.cores_per_task) == (True, None, None)


def test_a_shell_without_nodes_is_no_allocation() -> None:
    assert find_allocation({}) is None
    assert find_allocation({"SLURM_JOB_ID": "1"}) is None
    assert find_allocation(SALLOC_SHELL) is not None


@pytest.mark.parametrize(
    ("kind", "cores", "own"),
    [
        ("mask_cpu:", "0x1,0x2", True),
        ("mask_cpu:", "0x3,0x3", False),
        ("mask_cpu:", "0x3", False),
        ("map_cpu:", "0,8", True),
        ("none", "", False),
        ("mask_cpu:", "what", False),
    ],
)
def test_a_task_has_cores_of_its_own_when_no_other_is_bound_to_them(kind: str, cores: str, own: bool) -> None:
    task = find_task(SRUN | {"SLURM_CPU_BIND_TYPE": kind, "SLURM_CPU_BIND_LIST": cores})
    assert task is not None
    assert task.local_tasks == 2
    assert task.own_cores == own


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:h100:8(S:0-1)", 8),
        ("gres/gpu:4", 4),
        ("gres:gpu:2", 2),
        ("gpu:a100:4(S:0),gpu:mig:2,shard:16", 6),
        ("(null)", 0),
        ("N/A", 0),
    ],
)
def test_gpus_among_generic_resources(gres: str, gpus: int) -> None:
    assert queue.gpus_in(gres) == gpus


def test_partitions_sum_their_kinds_of_nodes(slurm: FakeSlurm) -> None:
    found = queue.partitions(slurm.environment)
    assert found["gpu"] == queue.Partition("gpu", 64, (8,), is_default=True)
    assert found["mixed"] == queue.Partition("mixed", 14, (4, 8))
    assert found["cpu"].gpus == ()


def test_a_job_is_active_while_the_queue_lists_it(slurm: FakeSlurm) -> None:
    slurm.command("squeue", prints="PENDING")
    assert queue.is_active("5", slurm.environment)
    assert "--jobs=5" in slurm.called("squeue")
    slurm.command("squeue")
    assert not queue.is_active("5", slurm.environment)
    slurm.command("squeue", complains="slurm_load_jobs error: Invalid job id specified", code=1)
    assert not queue.is_active("5", slurm.environment)
    slurm.command("squeue", complains="slurm_load_jobs error: Unable to contact slurm controller", code=1)
    with pytest.raises(LaunchError, match="Unable to contact slurm controller"):
        queue.is_active("5", slurm.environment)

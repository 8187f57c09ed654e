"""What Slurm tells the tasks of a step, and a shell in an allocation, through their environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_FIRST_SPECIAL_STEP = 0xFFFFFF00
"""Slurm numbers its own steps (batch body, interactive shell, extern) from the top of 32 bits."""
_FIRST_PORT, _PORTS = 12_000, 16_000
"""Range of rendezvous ports: above the well-known ones, below those that systems hand out by themselves."""


@dataclass(frozen=True)
class Task:
    """One task of a numbered step."""

    rank: int
    tasks: int
    local_rank: int
    local_tasks: int
    first_host: str
    port: int
    own_cores: bool = False
    """Bound to cores that no other task of this machine may use."""


@dataclass(frozen=True)
class Allocation:
    """What a job has: what an salloc shell, a batch body and every task see alike.

    cores_per_node, gpus_per_node: on the node that has fewest; tasks_per_node: as the user asked for;
    in_step: this process is a task itself, and its own resources are part of the job's.
    """

    job_id: str
    nodes: int
    cores_per_node: int | None = None
    gpus_per_node: int | None = None
    tasks_per_node: int | None = None
    cores_per_task: int | None = None
    in_step: bool = False


def find_task(environment: Mapping[str, str]) -> Task | None:
    """The task this process is, or None outside a numbered step."""
    step_id = environment.get("SLURM_STEP_ID", environment.get("SLURM_STEPID", ""))
    if not step_id.isdigit() or int(step_id) >= _FIRST_SPECIAL_STEP:
        return None
    try:
        tasks = int(environment.get("SLURM_STEP_NUM_TASKS") or environment["SLURM_NTASKS"])
        rank = int(environment["SLURM_PROCID"])
        local_rank = int(environment["SLURM_LOCALID"])
        job_id = int(environment.get("SLURM_JOB_ID", "0"))
    except (KeyError, ValueError):
        return None
    node_list = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
    hosts = expand_hosts(node_list)
    per_node = expand_counts(
        environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", "")
    )
    node = int(environment.get("SLURM_NODEID", "0"))
    local_tasks = per_node[node] if node < len(per_node) else tasks
    return Task(
        rank=rank,
        tasks=tasks,
        local_rank=local_rank,
        local_tasks=local_tasks,
        first_host=hosts[0] if hosts else "127.0.0.1",
        port=_FIRST_PORT + (job_id * 37 + int(step_id)) % _PORTS,
        own_cores=_own_cores(environment, local_tasks),
    )


def _own_cores(environment: Mapping[str, str], local_tasks: int) -> bool:
    """Whether each task of this machine is bound to cores of its own, by the list that Slurm leaves behind.

    A list shorter than the tasks is gone through again, so that some share an entry.
    """
    kind = environment.get("SLURM_CPU_BIND_TYPE", "")
    bound = [word for word in environment.get("SLURM_CPU_BIND_LIST", "").split(",") if word]
    try:
        masks = [int(word, 16) if kind == "mask_cpu:" else 1 << int(word, 0) for word in bound]
    except ValueError:
        return False
    together = 0
    for mask in masks:
        if together & mask:
            return False
        together |= mask
    return kind in ("mask_cpu:", "map_cpu:") and len(masks) >= local_tasks


def find_allocation(environment: Mapping[str, str]) -> Allocation | None:
    """The allocation this process is in, or None outside of any."""
    job_id = environment.get("SLURM_JOB_ID", "")
    nodes = _number(environment, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    if not job_id.isdigit() or nodes is None:
        return None
    # In a step (srun --pty bash) tasks and their cores are the shell's own, no wish for a run.
    in_step = find_task(environment) is not None
    asked = None if in_step else _number(environment, "SLURM_NTASKS_PER_NODE")
    if asked is None and not in_step and "SLURM_NTASKS" in environment:
        # Without either, Slurm writes one task a node, which nobody asked for.
        asked = min(expand_counts(environment.get("SLURM_TASKS_PER_NODE", "")), default=None)
    return Allocation(
        job_id=job_id,
        nodes=nodes,
        cores_per_node=min(expand_counts(environment.get("SLURM_JOB_CPUS_PER_NODE", "")), default=None),
        gpus_per_node=_gpus(environment),
        tasks_per_node=asked,
        cores_per_task=None if in_step else _number(environment, "SLURM_CPUS_PER_TASK"),
        in_step=in_step,
    )


def _gpus(environment: Mapping[str, str]) -> int | None:
    """GPUs of a node: `8` or `h100:8` as they were asked for, else what the first node was given."""
    asked = environment.get("SLURM_GPUS_PER_NODE", "")
    counts = [int(number) for number in re.findall(r"(?:^|[,:])(\d+)(?=,|$)", asked)]
    return sum(counts) or _number(environment, "SLURM_GPUS_ON_NODE")


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


def rendezvous_variables(task: Task) -> dict[str, str]:
    """RANK, WORLD_SIZE and the rest as torchrun would have set them; equal address and port on all tasks."""
    return {
        "RANK": str(task.rank),
        "WORLD_SIZE": str(task.tasks),
        "LOCAL_RANK": str(task.local_rank),
        "LOCAL_WORLD_SIZE": str(task.local_tasks),
        "MASTER_ADDR": task.first_host,
        "MASTER_PORT": str(task.port),
    }


def expand_hosts(node_list: str) -> list[str]:
    """`node[01-03,7],login` -> node01 node02 node03 node7 login; leading zeros are kept.

    Several brackets in one name multiply (`rack[1-2]n[1-2]`), as Slurm writes them.
    """
    return [host for word in _split_outside_brackets(node_list) for host in _expand(word)]


def _split_outside_brackets(text: str) -> list[str]:
    return [word for word in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text.strip()) if word.strip()]


def _expand(word: str) -> list[str]:
    head, bracket, rest = word.partition("[")
    if not bracket:
        return [word]
    inside, _, tail = rest.partition("]")
    numbers: list[str] = []
    for item in inside.split(","):
        first, dash, last = item.partition("-")
        if dash:
            numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
        else:
            numbers.append(first)
    return [head + number + end for number in numbers for end in _expand(tail)]


def expand_counts(text: str) -> list[int]:
    """`8(x2),4` -> 8, 8, 4: tasks of each node in order."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts

"""What Slurm tells a task of a step, and the variables torch expects in its place."""

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
    return Task(
        rank=rank,
        tasks=tasks,
        local_rank=local_rank,
        local_tasks=per_node[node] if node < len(per_node) else tasks,
        first_host=hosts[0] if hosts else "127.0.0.1",
        port=_FIRST_PORT + (job_id * 37 + int(step_id)) % _PORTS,
    )


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

"""Nodes and tasks that launch=slurm means, in the allocation this shell is in or in a job of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlm.config.names import alternatives
from mlm.errors import LaunchError, Problem
from mlm.launch.machine import Machine
from mlm.launch.slurm import queue
from mlm.launch.slurm.environment import Allocation, find_allocation

if TYPE_CHECKING:
    from mlm.launch.preflight import Layout


@dataclass(frozen=True)
class SlurmPlan:
    """How a run lies on nodes: tasks_per_node on each of nodes, in an allocation or, None, in a new job."""

    nodes: int
    tasks_per_node: int
    device: str
    dp: int
    cores_per_task: int | None = None
    allocation: Allocation | None = None

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node


def plan(
    config: Layout, machine: Machine, environment: Mapping[str, str]
) -> tuple[SlurmPlan, list[Problem], list[str]]:
    """The plan, what stands against it, and what the user should know though it forbids nothing.

    The nodes are not here, so their memory and devices are for the tasks to check once they have started;
    here it is only what Slurm tells. With problems, the plan is the best that can be said.
    """
    allocation = find_allocation(environment)
    tool = "sbatch" if allocation is None else "srun"
    problems: list[Problem] = []
    warnings: list[str] = []
    gpus, partition = _gpus(config, allocation, machine, environment, tool, problems)
    device = _device(config, gpus, machine, warnings, problems)
    shared = max(1, config.tp) * max(1, config.pp)
    per_node = _per_node(config, device, gpus, allocation, machine, problems, warnings)
    dp = _dp(config, shared, per_node, allocation, problems, warnings)
    processes = shared * dp
    if per_node is None:
        return SlurmPlan(1, processes, device, dp, None, allocation), problems, warnings
    nodes, tasks = -(-processes // per_node), min(processes, per_node)
    if nodes > 1:
        problems += _does_not_divide(processes, per_node, shared)
        if per_node % max(1, config.tp):
            where = f"tp={config.tp} does not divide nodes of {per_node}"
            warnings.append(f"{where}: tp groups lie across nodes, which is slow")
    found = SlurmPlan(nodes, tasks, device, dp, config.launch.threads, allocation)
    if allocation is None:
        problems += _beyond_partition(found, partition)
    else:
        found = replace(found, cores_per_task=_cores_per_task(config, found, allocation))
        problems += _beyond_allocation(config, found, allocation)
    return found, problems, warnings


def _gpus(
    config: Layout,
    allocation: Allocation | None,
    machine: Machine,
    environment: Mapping[str, str],
    tool: str,
    problems: list[Problem],
) -> tuple[tuple[int, ...], queue.Partition | None]:
    """Numbers of GPUs that nodes have, as far as they are known, and the partition that a new job goes to."""
    if not queue.has_command(tool, environment):
        wrong = f"needs {tool}, which is not on the PATH here"
        remedy = "type it on a machine of the Slurm cluster; launch=dry_run shows the plan anywhere"
        problems.append(Problem("launch=slurm", wrong, remedy))
        return (), None
    if allocation is not None:
        known = allocation.gpus_per_node or queue.gpus_of_job(allocation.job_id, environment)
        known = known or len(machine.accelerators)
        return ((known,) if known else ()), None
    try:
        partitions = queue.partitions(environment)
    except LaunchError as error:
        problems.append(Problem("launch=slurm", str(error), "ask whoever runs the cluster"))
        return (), None
    asked = config.launch.partition or environment.get("SBATCH_PARTITION")
    if asked is None:
        partition = next((p for p in partitions.values() if p.is_default), None)
    else:
        partition = partitions.get(asked)
        if partition is None:
            wrong = "is no partition of this cluster"
            remedy = f"use {alternatives(sorted(partitions))}" if partitions else "sinfo lists none"
            problems.append(Problem(f"launch.partition={asked}", wrong, remedy))
    return (() if partition is None else partition.gpus), partition


def _device(
    config: Layout, gpus: tuple[int, ...], machine: Machine, warnings: list[str], problems: list[Problem]
) -> str:
    asked = config.launch.device
    # The nodes run the Python that runs this.
    cpu_build = machine.torch_version is not None and machine.torch_cuda is None
    without = f"the installed torch {machine.torch_version} is built without CUDA"
    if asked == "cuda" and cpu_build:
        problems.append(Problem("launch.device=cuda", f"cannot be used: {without}", "use launch.device=cpu"))
    if asked != "auto":
        return asked
    if gpus and cpu_build:
        warnings.append(f"{without}: the CPUs of nodes with {gpus[-1]} GPUs are used")
    return "cuda" if gpus and not cpu_build else "cpu"


def _per_node(
    config: Layout,
    device: str,
    gpus: tuple[int, ...],
    allocation: Allocation | None,
    machine: Machine,
    problems: list[Problem],
    warnings: list[str],
) -> int | None:
    given = config.launch.devices_per_node
    if given is not None:
        if device == "cuda" and gpus and given > gpus[-1]:
            wrong = f"is more than the {gpus[-1]} GPUs that Slurm knows of on a node"
            remedy = f"use launch.devices_per_node={gpus[-1]} or less"
            problems.append(Problem(f"launch.devices_per_node={given}", wrong, remedy))
        return max(1, given)
    if device == "cuda" and gpus:
        if len(gpus) > 1:
            have = alternatives([str(count) for count in gpus])
            warnings.append(f"nodes have {have} GPUs: {gpus[0]} of each are used (launch.devices_per_node)")
        return gpus[0]
    if device == "cpu" and allocation is not None and allocation.tasks_per_node:
        return allocation.tasks_per_node
    what = "CPU processes" if device == "cpu" else "GPUs"
    wrong = f"is not set, and Slurm does not tell how many {what} a node is to have"
    if gpus and device == "cpu" and config.launch.device == "auto":
        wrong += (
            f" (its {gpus[-1]} GPUs are of no use to torch {machine.torch_version}, a build without CUDA)"
        )
    # A refusal of the command or the partition has said already why nothing is known.
    if not problems:
        problems.append(Problem("launch.devices_per_node", wrong, "use launch.devices_per_node=NUMBER"))
    return None


def _dp(
    config: Layout,
    shared: int,
    per_node: int | None,
    allocation: Allocation | None,
    problems: list[Problem],
    warnings: list[str],
) -> int:
    if config.dp is not None:
        return max(1, config.dp)
    if allocation is None:
        wrong = "is not set, and outside an allocation nothing says how many processes there are to be"
        problems.append(Problem("dp", wrong, f"use dp=N for N*{shared} processes"))
        return 1
    if per_node is None:
        return 1
    devices = allocation.nodes * per_node
    whole = (dp for dp in range(devices // shared, 0, -1) if _divides(shared * dp, per_node))
    dp = next(whole, 1)
    if shared * dp < devices:
        warnings.append(f"{devices - shared * dp} of {devices} devices of the allocation stay idle")
    return dp


def _divides(processes: int, per_node: int) -> bool:
    return processes <= per_node or processes % per_node == 0


def _does_not_divide(processes: int, per_node: int, shared: int) -> list[Problem]:
    if _divides(processes, per_node):
        return []
    now = processes // shared
    fitting = [
        dp for dp in range(max(1, now - per_node), now + per_node + 1) if _divides(shared * dp, per_node)
    ]
    near = [*[dp for dp in fitting if dp < now][-1:], *[dp for dp in fitting if dp > now][:1]]
    wrong = f"are {processes} processes, which do not divide into nodes of {per_node}"
    remedy = f"use dp={alternatives([str(dp) for dp in near])}, or another launch.devices_per_node"
    return [Problem(f"tp*pp*dp={processes}", wrong, remedy)]


def _beyond_partition(found: SlurmPlan, partition: queue.Partition | None) -> list[Problem]:
    if partition is None or found.nodes <= partition.nodes:
        return []
    wrong = f"needs {_nodes(found)}, and partition {partition.name} has {partition.nodes}"
    remedy = "use a smaller dp, or another launch.partition"
    return [Problem(f"tp*pp*dp={found.tasks}", wrong, remedy)]


def _beyond_allocation(config: Layout, found: SlurmPlan, allocation: Allocation) -> list[Problem]:
    where = f"tp*pp*dp={found.tasks}"
    if found.nodes > allocation.nodes:
        wrong = f"needs {_nodes(found)}, and job {allocation.job_id} has {allocation.nodes}"
        remedy = f"use a smaller dp, or allocate with --nodes={found.nodes}"
        if config.launch.devices_per_node is None:
            remedy += ", or give launch.devices_per_node"
        return [Problem(where, wrong, remedy)]
    needed = found.tasks_per_node * (found.cores_per_task or 1)
    has = allocation.cores_per_node
    if has is not None and needed > has:
        each = f" of {found.cores_per_task} threads" if (found.cores_per_task or 1) > 1 else ""
        wrong = f"needs {needed} cores a node for {found.tasks_per_node} processes{each}, "
        wrong += f"and job {allocation.job_id} has {has}"
        remedy = f"allocate with --ntasks-per-node={found.tasks_per_node}"
        remedy += f" --cpus-per-task={found.cores_per_task}, or use fewer launch.threads" if each else ""
        return [Problem(where, wrong, remedy)]
    return []


def _cores_per_task(config: Layout, found: SlurmPlan, allocation: Allocation) -> int | None:
    """As asked for; otherwise the cores of a node shared out, as launch.threads=null has it everywhere."""
    given = config.launch.threads or allocation.cores_per_task
    if given or allocation.cores_per_node is None:
        return given
    return max(1, allocation.cores_per_node // found.tasks_per_node)


def _nodes(found: SlurmPlan) -> str:
    return f"{found.nodes} node{'s' if found.nodes > 1 else ''} of {found.tasks_per_node}"

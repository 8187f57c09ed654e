"""What Slurm's own commands answer: partitions, GPUs of a job, whether a job is still to be expected."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlm.errors import LaunchError

ANSWER_TIMEOUT_S = 60.0
"""Seconds a command of Slurm's may take: a busy controller lets them wait."""


@dataclass(frozen=True)
class Partition:
    """A partition: how many nodes it has, and the numbers of GPUs found on them, ascending and without 0."""

    name: str
    nodes: int
    gpus: tuple[int, ...] = ()
    is_default: bool = False


def has_command(name: str, environment: Mapping[str, str]) -> bool:
    """Whether a command of Slurm's is to be found there."""
    return shutil.which(name, path=environment.get("PATH")) is not None


def ask(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's that answers and ends. Raises LaunchError when it cannot be run or hangs."""
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise LaunchError(f"{command[0]} is not on the PATH: this is no machine of a Slurm cluster")
    try:
        return subprocess.run(
            [program, *command[1:]],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{command[0]} gave no answer: {error}") from error


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of what a command complained about, or its exit code."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"{done.args[0]} exited with code {done.returncode}"


def partitions(environment: Mapping[str, str]) -> dict[str, Partition]:
    """Every partition by its name. Raises LaunchError when sinfo does not answer."""
    # One line for each kind of node in each partition.
    done = ask(["sinfo", "--noheader", "--format=%P|%D|%G"], environment)
    if done.returncode:
        raise LaunchError(f"sinfo does not list the partitions: {said(done)}")
    kinds: dict[str, list[tuple[int, int]]] = {}
    default = None
    for line in done.stdout.splitlines():
        label, nodes, gres = (*line.split("|"), "", "")[:3]
        name = label.rstrip("*")
        default = name if label.endswith("*") else default
        kinds.setdefault(name, []).append((int(nodes) if nodes.isdigit() else 0, gpus_in(gres)))
    found = {}
    for name, of_nodes in kinds.items():
        gpus = tuple(sorted({count for _, count in of_nodes if count}))
        found[name] = Partition(name, sum(nodes for nodes, _ in of_nodes), gpus, name == default)
    return found


def gpus_in(gres: str) -> int:
    """`gpu:h100:8(S:0-1)`, `gres/gpu:8`, `gpu:4,shard:16` -> the GPUs among generic resources."""
    return sum(int(count) for count in re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)\b", gres))


def gpus_of_job(job_id: str, environment: Mapping[str, str]) -> int | None:
    """GPUs of each node of a job, None when squeue knows of none."""
    try:
        done = ask(["squeue", "--noheader", f"--jobs={job_id}", "--format=%b"], environment)
    except LaunchError:
        return None
    return gpus_in(done.stdout) or None


def is_active(job_id: str, environment: Mapping[str, str]) -> bool:
    """Whether a job is pending or running. Raises LaunchError when the cluster does not answer."""
    done = ask(["squeue", "--noheader", f"--jobs={job_id}", "--format=%T"], environment)
    if done.returncode and "invalid job id" not in done.stderr.lower():
        raise LaunchError(f"squeue does not tell the state of job {job_id}: {said(done)}")
    return done.returncode == 0 and bool(done.stdout.strip())

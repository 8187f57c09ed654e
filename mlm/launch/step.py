"""Is this process one of a job that torchrun or srun started (join it), or does it start its own (launch)?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlm.errors import Problem
from mlm.launch.slurm.environment import find_task


@dataclass(frozen=True)
class Step:
    """This process's place among those that somebody else started."""

    starter: str
    """torchrun, srun, or "the environment" for RANK, LOCAL_RANK and WORLD_SIZE set by anything else."""
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    own_cores: bool = False
    """The cores this process may use are its alone, not shared with the others of this machine."""


def find_step(environment: Mapping[str, str]) -> Step | None:
    """The step this process belongs to, or None.

    A step is TORCHELASTIC_RUN_ID, or LOCAL_RANK together with RANK and WORLD_SIZE, or a numbered
    SLURM_STEP_ID. SLURM_JOB_ID alone (every salloc shell and sbatch body has it) and WORLD_SIZE alone
    (some cluster operators set it to the number of pods) are none.
    """
    ranked = all(name in environment for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if "TORCHELASTIC_RUN_ID" in environment or ranked:
        try:
            world_size = int(environment["WORLD_SIZE"])
            return Step(
                starter="torchrun" if "TORCHELASTIC_RUN_ID" in environment else "the environment",
                rank=int(environment["RANK"]),
                world_size=world_size,
                local_rank=int(environment["LOCAL_RANK"]),
                local_world_size=int(environment.get("LOCAL_WORLD_SIZE", world_size)),
            )
        except (KeyError, ValueError):
            return None  # TORCHELASTIC_RUN_ID left behind without ranks: nobody's worker
    task = find_task(environment)
    if task is None:
        return None
    return Step("srun", task.rank, task.tasks, task.local_rank, task.local_tasks, task.own_cores)


def choose_step(
    mode: str, environment: Mapping[str, str], shared: int, dp: int | None
) -> tuple[Step | None, list[Problem]]:
    """The step to join, or None to launch, and what is wrong with the number of processes.

    mode: launch.mode; shared: tp * pp; dp: data-parallel degree or None for as many as there are.
    """
    if mode in ("local", "dry_run"):
        return None, []
    step = find_step(environment)
    if step is None:
        if mode == "join":
            return None, [
                Problem(
                    "launch=join",
                    "needs a step that torchrun or srun started, and this process is in none",
                    "start it with torchrun or srun, or leave launch=auto",
                )
            ]
        return None, []
    if mode in ("auto", "slurm") and step.starter == "srun" and step.world_size == 1:
        # One task that may start its own workers, as `srun --gpus=8 mlm-train tp=8` means it, or a shell.
        return None, []
    return step, _world_problems(step, shared, dp)


def _world_problems(step: Step, shared: int, dp: int | None) -> list[Problem]:
    option = {"torchrun": "--nproc-per-node (times --nnodes)", "srun": "--ntasks"}.get(
        step.starter, "WORLD_SIZE"
    )
    where = f"{step.world_size} process{'es' if step.world_size > 1 else ''} from {step.starter}"
    if dp is not None and step.world_size != shared * dp:
        return [
            Problem(
                where,
                f"{'are' if step.world_size > 1 else 'is'} not tp*pp*dp={shared * dp}",
                f"use {option} = {shared * dp}, or leave dp out",
            )
        ]
    if step.world_size % shared:
        lower = step.world_size // shared * shared
        values = f"{lower} or {lower + shared}" if lower else str(shared)
        return [
            Problem(
                where,
                f"{'are' if step.world_size > 1 else 'is'} not a multiple of tp*pp={shared}",
                f"use {option} = {values}, or another tp",
            )
        ]
    return []

"""Join or launch: every row is an environment that some way of starting leaves behind."""

from __future__ import annotations

import pytest

from mlm.launch.step import Step, choose_step, find_step

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
}
SRUN = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
SALLOC_SHELL = {"SLURM_JOB_ID": "1234", "SLURM_NTASKS": "8", "SLURM_NNODES": "1"}
SBATCH_BODY = SALLOC_SHELL | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (TORCHRUN, Step("torchrun", 3, 4, 1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, Step("the environment", 0, 2, 0, 2)),
        (SRUN, Step("srun", 2, 4, 0, 2)),
        (SRUN | TORCHRUN, Step("torchrun", 3, 4, 1, 2)),  # torchrun started by srun
        (SALLOC_SHELL, None),
        (SBATCH_BODY, None),
        (SBATCH_BODY | {"SLURM_STEP_ID": "4294967291"}, None),  # Slurm's number for the batch body
        (SBATCH_BODY | {"SLURM_STEP_ID": "4294967290"}, None),  # and for an interactive shell
        ({"WORLD_SIZE": "4"}, None),  # an operator's number of pods
        ({"WORLD_SIZE": "4", "RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, None),
        ({"TORCHELASTIC_RUN_ID": "left behind"}, None),
        (SRUN | {"SLURM_PROCID": "two"}, None),
    ],
)
def test_a_step_is_found_only_where_somebody_started_processes(
    environment: dict[str, str], expected: Step | None
) -> None:
    assert find_step(environment) == expected


ONE_TASK = SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}


@pytest.mark.parametrize(
    ("mode", "environment", "shared", "dp", "world_size", "said"),
    [
        ("auto", {}, 2, None, None, None),
        ("auto", TORCHRUN, 2, None, 4, None),
        ("auto", TORCHRUN, 2, 2, 4, None),
        ("auto", TORCHRUN, 3, None, 4, "not a multiple of tp*pp=3"),
        ("auto", TORCHRUN, 2, 1, 4, "not tp*pp*dp=2"),
        ("auto", SRUN, 4, None, 4, None),
        ("auto", SRUN, 8, None, 4, "not a multiple of tp*pp=8"),
        ("auto", ONE_TASK, 8, None, None, None),  # this one task starts the eight itself
        ("join", ONE_TASK, 1, None, 1, None),
        ("auto", SALLOC_SHELL, 8, None, None, None),
        ("local", TORCHRUN, 3, None, None, None),
        ("dry_run", TORCHRUN, 3, None, None, None),
        ("join", {}, 1, None, None, "in none"),
        ("join", SALLOC_SHELL, 1, None, None, "in none"),
    ],
)
def test_join_or_launch(
    mode: str,
    environment: dict[str, str],
    shared: int,
    dp: int | None,
    world_size: int | None,
    said: str | None,
) -> None:
    step, problems = choose_step(mode, environment, shared, dp)
    assert (step.world_size if step else None) == world_size
    assert len(problems) == (said is not None)
    if said is not None:
        assert said in str(problems[0])


def test_a_wrong_world_names_the_options_and_the_nearest_numbers() -> None:
    _, (problem,) = choose_step("auto", TORCHRUN | {"WORLD_SIZE": "3"}, 2, None)
    assert "3 processes from torchrun" in problem.where
    assert "--nproc-per-node" in problem.remedy
    assert "2 or 4" in problem.remedy
    _, (problem,) = choose_step("auto", SRUN, 8, None)
    assert "--ntasks = 8" in problem.remedy

from __future__ import annotations

import pytest

from mlm.launch.slurm.environment import expand_counts, expand_hosts, find_task, rendezvous_variables
from tests.unit.launch.test_step import SRUN


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ["node1"]),
        ("node1,login", ["node1", "login"]),
        ("node[01-03,7]", ["node01", "node02", "node03", "node7"]),
        ("node[098-101]", ["node098", "node099", "node100", "node101"]),
        ("a[1-2],b[5]-ib,c", ["a1", "a2", "b5-ib", "c"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
        ("", []),
    ],
)
def test_node_lists_expand_as_scontrol_show_hostnames_does(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize(
    ("text", "counts"), [("8", [8]), ("8(x2),4", [8, 8, 4]), ("1,2(x3)", [1, 2, 2, 2]), ("", [])]
)
def test_tasks_per_node_expand(text: str, counts: list[int]) -> None:
    assert expand_counts(text) == counts


def test_a_task_tells_torch_what_torchrun_would() -> None:
    task = find_task(SRUN)
    assert task is not None
    variables = rendezvous_variables(task)
    port = variables.pop("MASTER_PORT")
    assert variables == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "n1",
    }
    assert 1024 < int(port) < 32768, "below the ports that systems hand out by themselves"


def test_all_tasks_of_a_step_name_one_port_and_steps_name_different_ones() -> None:
    def port(**changes: str) -> int:
        task = find_task(SRUN | changes)
        assert task is not None
        return task.port

    assert port(SLURM_PROCID="0") == port(SLURM_PROCID="3")
    assert len({port(SLURM_STEP_ID=str(step)) for step in range(20)}) == 20
    assert len({port(SLURM_JOB_ID=str(job)) for job in range(1000, 1100)}) == 100

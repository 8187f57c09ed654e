"""Exposed communication in real recordings over gloo: a rank that waits, and one that computes meanwhile."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from mlm.train.profile import StepProfiler
from mlm.train.trace import StepTimes
from tests.dist.meshes import mesh_of

LATE_S = 0.3
"""How long rank 1 lets the other wait: far above what a busy machine adds."""


def compute(seconds: float) -> None:
    """Products for so long, one after the other."""
    a, end = torch.ones(256, 256), time.perf_counter() + seconds
    while time.perf_counter() < end:
        a @ a


def recorded(overlap: bool) -> list[StepTimes]:
    """One step in which rank 1 joins the all-reduce late; rank 0 waits for it, or computes first."""
    mesh = mesh_of(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        profiler = StepProfiler([1], Path(folder), mesh, torch.device("cpu"))
        profiler.start()
        with profiler.span("step 1"):
            if mesh.rank == 1:
                time.sleep(LATE_S)
            work = dist.all_reduce(torch.ones(1000), async_op=True)
            if overlap and mesh.rank == 0:
                compute(2 * LATE_S)
            work.wait()
        profiler.stop()
        times = profiler.write()
    assert times is not None
    return times


def test_every_rank_gets_the_times_of_all(pool):
    first, second = pool(2).run(recorded, False)
    assert first == second
    assert len(first) == 2


def test_waiting_for_a_late_rank_is_exposed_communication_of_the_one_that_waits(pool):
    waiting, late = pool(2).run(recorded, False)[0]
    assert waiting.exposed_communication_s > 0.9 * LATE_S
    assert waiting.compute_s < 0.1 * LATE_S
    assert late.other_s > 0.9 * LATE_S, "asleep, it neither computes nor communicates"
    assert late.exposed_communication_s < 0.5 * LATE_S


def test_communication_behind_computing_is_not_exposed(pool):
    computing, _ = pool(2).run(recorded, True)[0]
    assert computing.compute_s > 1.5 * LATE_S
    assert computing.exposed_communication_s < 0.4 * LATE_S

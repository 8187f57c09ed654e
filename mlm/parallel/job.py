"""A worker's place in its job: device, threads, process groups."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout as set_timeout

from mlm.parallel.device import backend_for, select_device, set_matmul_precision
from mlm.parallel.mesh import Axis, Mesh, build_mesh


@dataclass(frozen=True)
class Place:
    """One rank's device and mesh, and how its fp32 products are computed (highest or medium)."""

    device: torch.device
    mesh: Mesh
    matmul_precision: str


def take_place(
    *, device: str, threads: int | None, matmul: str, tp: int, pp: int, dp: int, timeout_s: float
) -> Place:
    """Join the job as the rank that the environment (RANK, WORLD_SIZE, LOCAL_RANK) names; collective.

    threads: of this process on CPU; timeout_s: seconds a collective may take.
    """
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    own = select_device(device, int(os.environ.get("LOCAL_RANK", 0)))
    if own.type == "cpu":
        torch.set_num_threads(threads or 1)
    matmul_precision = set_matmul_precision(matmul, own)
    mesh = Mesh.single()
    if world_size > 1:
        dist.init_process_group(
            backend_for(own),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout_s),
            device_id=own if own.type == "cuda" else None,
        )
        mesh = build_mesh(tp, pp, dp, own.type)
        for axis in (mesh.tp, mesh.pp, mesh.dp):
            _limit(axis, timeout_s)
    return Place(own, mesh, matmul_precision)


def _limit(axis: Axis, timeout_s: float) -> None:
    """Give the axis's group the time limit, which it does not inherit from the job's."""
    if axis.group is not None:
        set_timeout(timedelta(seconds=timeout_s), axis.group)

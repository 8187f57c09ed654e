"""Which rank belongs to which group: the process mesh and its axes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


@dataclass(frozen=True)
class Axis:
    """One kind of parallelism as this rank sees it: its position among `size` ranks that share work.

    `group` is the process group of those ranks, None when size is 1: layers then communicate nothing.
    """

    name: str
    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def single(name: str = "tp") -> Axis:
        """The axis of a layer that is not split."""
        return Axis(name)

    def slice_of(self, full: int) -> slice:
        """The part of a dimension of `full` elements that this rank holds; `full` is a multiple of size."""
        part = full // self.size
        return slice(self.rank * part, (self.rank + 1) * part)


@dataclass(frozen=True)
class Mesh:
    """All axes of one rank.

    Ranks are numbered with tp fastest, so that a tensor-parallel group is consecutive ranks and stays
    inside one server, where its all-reduces are cheapest (paper, section 5.1). Eight ranks, tp=2, dp=4:

        tp groups: [0 1] [2 3] [4 5] [6 7]         share one copy of the model
        dp groups: [0 2 4 6] [1 3 5 7]             hold the same slice, see different samples
    """

    tp: Axis
    pp: Axis
    dp: Axis
    device_mesh: DeviceMesh | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def single() -> Mesh:
        """The mesh of one process; no process group is needed."""
        return Mesh(tp=Axis("tp"), pp=Axis("pp"), dp=Axis("dp"))

    @property
    def world_size(self) -> int:
        return self.tp.size * self.pp.size * self.dp.size

    @property
    def rank(self) -> int:
        return (self.pp.rank * self.dp.size + self.dp.rank) * self.tp.size + self.tp.rank


def build_mesh(tp: int, pp: int, dp: int, device_type: str) -> Mesh:
    """The mesh of this rank over the initialised default process group of tp * pp * dp ranks.

    Every rank creates every group in the same order, as NCCL demands.
    """
    device_mesh = init_device_mesh(device_type, (pp, dp, tp), mesh_dim_names=("pp", "dp", "tp"))

    def axis(name: str) -> Axis:
        sub_mesh = device_mesh[name]
        size = sub_mesh.size()
        return Axis(name, sub_mesh.get_local_rank(), size, sub_mesh.get_group() if size > 1 else None)

    return Mesh(tp=axis("tp"), pp=axis("pp"), dp=axis("dp"), device_mesh=device_mesh)

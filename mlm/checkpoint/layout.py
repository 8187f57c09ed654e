"""A run's tensors as torch.distributed.checkpoint sees them: shards of full tensors, by logical name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from mlm.parallel.parameter import Declaration, named_declarations

FIRST_MOMENT = "optim.first_moment."
SECOND_MOMENT = "optim.second_moment."


def weights(model: nn.Module) -> dict[str, tuple[Tensor, Declaration]]:
    """This rank's part of every parameter, as `model.NAME`; shares memory with the model."""
    return {f"model.{name}": (p.detach(), d) for name, p, d in named_declarations(model)}


def moments(
    model: nn.Module, named_moments: Iterable[tuple[str, Tensor, Tensor]]
) -> dict[str, tuple[Tensor, Declaration]]:
    """This rank's part of Adam's moments, which have their parameter's layout."""
    declarations = {name: declaration for name, _, declaration in named_declarations(model)}
    tensors = {}
    for name, first, second in named_moments:
        tensors[FIRST_MOMENT + name] = (first, declarations[name])
        tensors[SECOND_MOMENT + name] = (second, declarations[name])
    return tensors


def as_global(local: Mapping[str, tuple[Tensor, Declaration]], mesh: DeviceMesh | None) -> dict[str, Tensor]:
    """Every part wrapped with its place in the full tensor, as its declaration says.

    mesh: (pp, dp, tp) of the tensors' device; None in a job of one process, whose parts are the whole.
    Ranks of dp hold copies, which lets the planner share the writing out among them.
    """
    if mesh is None:
        return {name: part for name, (part, _) in local.items()}
    return {
        name: DTensor.from_local(
            part,
            mesh,
            [Replicate(), Replicate(), Replicate() if d.split_dim is None else Shard(d.split_dim)],
            run_check=False,
        )
        for name, (part, d) in local.items()
    }

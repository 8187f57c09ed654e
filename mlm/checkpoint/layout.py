"""A model's tensors as torch.distributed.checkpoint sees them: shards of full tensors."""

from __future__ import annotations

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import Declaration, named_declarations


def model_tensors(model: nn.Module, mesh: Mesh) -> dict[str, Tensor]:
    """Every parameter by name, as a shard of its full shape; shares memory with the model."""
    return {name: as_global(p.detach(), d, mesh) for name, p, d in named_declarations(model)}


def as_global(local: Tensor, declaration: Declaration, mesh: Mesh) -> Tensor:
    """This rank's part wrapped with its place in the full tensor, as the parameter's declaration says.

    At tp=1 the part is the whole and is returned as it is.
    """
    if mesh.device_mesh is None or mesh.tp.size == 1:
        return local
    placement = Replicate() if declaration.split_dim is None else Shard(declaration.split_dim)
    tp_mesh = mesh.device_mesh["tp"]
    return DTensor.from_local(local, tp_mesh, [placement], run_check=False)

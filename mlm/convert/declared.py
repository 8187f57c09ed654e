"""The parameters that a configuration declares, without any memory for them."""

from __future__ import annotations

import torch

from mlm.config.schema import ModelConfig
from mlm.models.registry import build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import Declaration, named_declarations
from mlm.parallel.rng import RngStreams


def declarations(model: ModelConfig) -> dict[str, Declaration]:
    """Name of every parameter -> its declaration, as the model is built at any tp."""
    mesh = Mesh.single()
    rng = RngStreams(0, mesh, torch.device("cpu"))
    built = build_model(model, tp=mesh.tp, rng=rng, seed=0, device="meta")
    return {name: declaration for name, _, declaration in named_declarations(built)}

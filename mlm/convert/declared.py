"""The parameters that a configuration declares, without any memory for them."""

from __future__ import annotations

import torch

from mlm.config.schema import ModelConfig
from mlm.convert.source import Source
from mlm.models.registry import ENCODER, MODELS, build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import Declaration, named_declarations
from mlm.parallel.rng import RngStreams


def declarations(model: ModelConfig, objective: str | None = None) -> dict[str, Declaration]:
    """Name of every parameter -> its declaration, as the model is built for the objective at any tp."""
    mesh = Mesh.single()
    rng = RngStreams(0, mesh, torch.device("cpu"))
    built = build_model(model, tp=mesh.tp, rng=rng, seed=0, objective=objective, device="meta")
    return {name: declaration for name, _, declaration in named_declarations(built)}


def objective_of(source: Source) -> str:
    """What the source's model is for, as its heads tell: the architecture's own objective, or none."""
    own, *others = MODELS[source.model.architecture]
    if ENCODER not in others:
        return own
    trunk = declarations(source.model, ENCODER)
    names = {source.table.canonical(name) for name in source.shapes}
    heads = (e for ours, e in source.table.of_layers(source.model.num_layers).items() if ours not in trunk)
    return own if any(names.intersection(entry.theirs) for entry in heads) else ENCODER

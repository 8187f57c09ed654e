"""Meshes and models for tests that run inside a pool."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from mlm.config.schema import ModelConfig
from mlm.models.registry import build_model
from mlm.parallel.collectives import all_gathered
from mlm.parallel.mesh import Mesh, build_mesh
from mlm.parallel.parameter import Declaration, named_declarations
from mlm.parallel.rng import RngStreams

TINY = ModelConfig(
    name="tiny",
    num_layers=2,
    hidden_size=32,
    num_heads=4,
    seq_length=16,
    vocab_size=37,
    padded_vocab_size=40,
    dropout=0.0,
    attention_dropout=0.0,
    # Large enough for every parameter to matter in the loss.
    init_std=0.3,
)


@cache
def mesh_of(tp: int, dp: int) -> Mesh:
    """The mesh of this process in its pool of tp * dp processes; groups are made once."""
    return Mesh.single() if tp * dp == 1 else build_mesh(tp, 1, dp, "cpu")


def tiny_model(
    mesh: Mesh, dtype: torch.dtype = torch.float64, seed: int = 7, overlap: bool = True, **changes: Any
) -> nn.Module:
    rng = RngStreams(seed, mesh, torch.device("cpu"))
    config = replace(TINY, **changes)
    return build_model(config, tp=mesh.tp, rng=rng, seed=seed, overlap=overlap, dtype=dtype)


def whole(local: Tensor, declaration: Declaration, mesh: Mesh) -> Tensor:
    """The full tensor of a declared parameter, or of its gradient, from the ranks' parts."""
    if declaration.split_dim is None:
        return local.detach().clone()
    return all_gathered(local.detach(), mesh.tp, declaration.split_dim).clone()


def whole_parameters(model: nn.Module, mesh: Mesh) -> dict[str, Tensor]:
    return {name: whole(p, d, mesh) for name, p, d in named_declarations(model)}


def whole_gradients(model: nn.Module, mesh: Mesh) -> dict[str, Tensor]:
    return {name: whole(p.grad, d, mesh) for name, p, d in named_declarations(model) if p.grad is not None}

"""Checkpoints are one logical tensor per parameter: written at one layout, read at any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mlm.checkpoint.save import load_weights, save_checkpoint
from mlm.errors import CheckpointError
from mlm.optim.adamw import AdamW, parameter_groups
from tests.dist.meshes import mesh_of, tiny_model, whole_parameters


def save(tp: int, dp: int, directory: Path) -> dict[str, torch.Tensor]:
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh, torch.float32)
    optimizer = AdamW(parameter_groups(model, 0.0), beta1=0.9, beta2=0.99, eps=1e-8)
    save_checkpoint(directory, model, optimizer.named_moments(), mesh)
    return whole_parameters(model, mesh)


def load(tp: int, dp: int, directory: Path) -> dict[str, torch.Tensor]:
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh, torch.float32, seed=999)
    load_weights(directory, model, mesh)
    return whole_parameters(model, mesh)


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (2, 1), (2, 2)])
def test_a_checkpoint_loads_bit_equal_at_every_other_layout(pool, tmp_path, tp, dp):
    directory = tmp_path / "step_1"
    saved = pool(tp * dp).run(save, tp, dp, directory)[0]
    assert not list(tmp_path.glob("*.tmp")), "nothing half-written is left"
    for other_tp, other_dp in [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]:
        for loaded in pool(other_tp * other_dp).run(load, other_tp, other_dp, directory):
            assert saved.keys() == loaded.keys()
            for name, value in saved.items():
                assert torch.equal(value, loaded[name]), f"{name} at tp={other_tp} dp={other_dp}"


def refusals(directory: Path) -> None:
    mesh = mesh_of(1, 1)
    model = tiny_model(mesh, torch.float32)
    save_checkpoint(directory, model, [], mesh)
    with pytest.raises(CheckpointError, match="never overwritten"):
        save_checkpoint(directory, model, [], mesh)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load_weights(directory.parent, model, mesh)
    with pytest.raises(CheckpointError, match="does not fit"):
        load_weights(directory, tiny_model(mesh, torch.float32, num_layers=3), mesh)


def test_what_is_no_checkpoint_or_of_another_model_is_refused(pool, tmp_path):
    pool(1).run(refusals, tmp_path / "step_1")

"""Checkpoints are one logical tensor per parameter and moment: written at one layout, read at any other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mlm.checkpoint.folder import complete_steps
from mlm.checkpoint.layout import moments, weights
from mlm.checkpoint.load import load_training, load_weights
from mlm.checkpoint.manifest import damage, read_manifest
from mlm.checkpoint.save import Outcome, Saver
from mlm.checkpoint.state import TrainingState, read_state
from mlm.errors import CheckpointError
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.parameter import Declaration
from tests.dist.meshes import mesh_of, tiny_model, whole

LAYOUTS = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]


def built(tp: int, dp: int, seed: int) -> tuple[Any, torch.nn.Module, AdamW]:
    """A model and moments that only the seed determines, whatever the layout."""
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh, torch.float32, seed=seed)
    optimizer = AdamW(parameter_groups(model, 0.0), beta1=0.9, beta2=0.99, eps=1e-8)
    for number, (tensor, declaration) in enumerate(moments(model, optimizer.named_moments()).values()):
        generator = torch.Generator().manual_seed(1000 * seed + number)
        full = torch.randn(declaration.shape, generator=generator)
        tensor.copy_(declaration.local_part(full, mesh.tp))
    return mesh, model, optimizer


def everything(model: torch.nn.Module, optimizer: AdamW) -> dict[str, tuple[torch.Tensor, Declaration]]:
    return weights(model) | moments(model, optimizer.named_moments())


def full(tp: int, dp: int, model: torch.nn.Module, optimizer: AdamW) -> dict[str, torch.Tensor]:
    mesh = mesh_of(tp, dp)
    return {name: whole(t, d, mesh) for name, (t, d) in everything(model, optimizer).items()}


def save(tp: int, dp: int, folder: Path, asynchronous: bool) -> tuple[dict[str, torch.Tensor], list[Outcome]]:
    mesh, model, optimizer = built(tp, dp, seed=7)
    saved = full(tp, dp, model, optimizer)
    saver = Saver(folder, mesh, asynchronous=asynchronous)
    saver.save(TrainingState(step=1, consumed_samples=9), everything(model, optimizer))
    if asynchronous:  # what is saved is the state at the call, not what became of it
        for tensor, _ in everything(model, optimizer).values():
            tensor.zero_()
    saver.wait()
    return saved, saver.outcomes()


def load(tp: int, dp: int, directory: Path) -> dict[str, torch.Tensor]:
    mesh, model, optimizer = built(tp, dp, seed=8)
    load_training(directory, model, optimizer.named_moments(), mesh)
    return full(tp, dp, model, optimizer)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asynchronous"])
@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_weights_and_moments_load_bit_equal_at_every_other_layout(pool, tmp_path, tp, dp, asynchronous):
    results = pool(tp * dp).run(save, tp, dp, tmp_path, asynchronous)
    saved = results[0][0]
    assert all(outcome.error is None for _, (outcome,) in results)
    directory = tmp_path / "step_1"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step_1"], "nothing half-written is left"
    assert (tmp_path / "latest").read_text() == "step_1\n"
    assert damage(directory) == []
    assert read_state(directory) == TrainingState(step=1, consumed_samples=9)
    for other_tp, other_dp in LAYOUTS:
        for loaded in pool(other_tp * other_dp).run(load, other_tp, other_dp, directory):
            assert saved.keys() == loaded.keys()
            for name, value in saved.items():
                assert torch.equal(value, loaded[name]), f"{name} at tp={other_tp} dp={other_dp}"


def test_replicas_share_the_writing_and_every_element_is_written_once(pool, tmp_path):
    saved = pool(4).run(save, 2, 2, tmp_path, False)[0][0]
    files = read_manifest(tmp_path / "step_1").files
    shards = {name: record.bytes for name, record in files.items() if name.endswith(".safetensors")}
    assert sorted(shards) == [f"rank_{rank}.safetensors" for rank in range(4)]
    data = sum(tensor.numel() * 4 for tensor in saved.values())
    assert data < sum(shards.values()) < data + 4 * 20_000, "elements once, and a header a file"
    assert max(shards.values()) < 0.4 * sum(shards.values()), shards


def test_shards_are_safetensors_files(pool, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="needs the package safetensors")
    saved = pool(2).run(save, 2, 1, tmp_path, False)[0][0]
    name = "model.blocks.0.attention.qkv.weight"
    name = name if name in saved else next(n for n in saved if "qkv.weight" in n and n.startswith("model"))
    parts = [
        tensor
        for rank in range(2)
        for key, tensor in safetensors.load_file(tmp_path / "step_1" / f"rank_{rank}.safetensors").items()
        if key.partition("[")[0] == name
    ]
    assert torch.equal(torch.cat(parts), saved[name])


def retained(folder: Path) -> list[list[str]]:
    mesh, model, optimizer = built(1, 1, seed=7)
    saver = Saver(folder, mesh, keep_last=2, keep_every=4)
    there = []
    for step in range(1, 10):
        saver.save(TrainingState(step=step), everything(model, optimizer))
        there.append([directory.name for directory in complete_steps(folder)])
    return there


def test_the_last_two_and_every_fourth_are_kept(pool, tmp_path):
    there = pool(1).run(retained, tmp_path)[0]
    assert there[0] == ["step_1"]
    assert there[2] == ["step_2", "step_3"]
    assert there[-1] == ["step_4", "step_8", "step_9"]


def refusals(folder: Path) -> None:
    mesh, model, optimizer = built(1, 1, seed=7)
    saver = Saver(folder, mesh)
    for _ in range(2):
        saver.save(TrainingState(step=1), everything(model, optimizer))
    first, second = saver.outcomes()
    assert first.error is None
    assert second.error is not None
    assert "never overwritten" in second.error
    directory = folder / "step_1"
    assert damage(directory) == [], "the first is as it was"
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        load_weights(folder, model, mesh)
    for changes, message in [
        ({"num_layers": 3}, r"is of another model: it lacks model\.\S+ and \d+ more$"),
        ({"num_layers": 1}, r"it holds model\.\S+ and \d+ more, which this model does not have"),
        ({"ffn_hidden_size": 64}, r"of shape \[32, 128\] where this model has \[32, 64\]"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            load_weights(directory, tiny_model(mesh, torch.float32, **changes), mesh)


def test_what_is_no_checkpoint_or_of_another_model_is_refused(pool, tmp_path):
    pool(1).run(refusals, tmp_path)


def cannot_write(folder: Path, tp: int) -> list[Outcome]:
    mesh, model, optimizer = built(tp, 1, seed=7)
    saver = Saver(folder, mesh)
    saver.save(TrainingState(step=2), everything(model, optimizer))
    return saver.outcomes()


@pytest.mark.parametrize("tp", [1, 2])
def test_a_save_that_fails_is_reported_by_every_rank_and_leaves_nothing(pool, tmp_path, tp):
    folder = tmp_path / "a file"
    folder.write_text("in the way")
    for (outcome,) in pool(tp).run(cannot_write, folder, tp):
        assert outcome.error is not None
        assert "a file" in outcome.error
    assert folder.read_text() == "in the way"


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a truncated file": lambda d: os.truncate(d / "rank_0.safetensors", 100),
    "a missing file": lambda d: (d / "rank_1.safetensors").unlink(),
    "a flipped bit": lambda d: flip(d / "rank_1.safetensors"),
    "another index": lambda d: flip(d / "index.json"),
    "another state": lambda d: (d / "state.json").write_text("{}"),
}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_and_names_the_file(pool, tmp_path, kind):
    pool(2).run(save, 2, 1, tmp_path, False)
    directory = tmp_path / "step_1"
    before = {path: path.read_bytes() for path in directory.iterdir()}
    DAMAGES[kind](directory)
    changed = [p for p in before if not p.exists() or p.read_bytes() != before[p]]
    (sentence,) = damage(directory)
    assert str(changed[0]) in sentence

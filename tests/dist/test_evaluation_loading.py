"""A run's checkpoint loads for evaluation at any tp, whatever it was trained at, with its own tokenizer."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from mlm.checkpoint.layout import weights
from mlm.checkpoint.save import Saver
from mlm.checkpoint.state import TrainingState
from mlm.config.compose import compose
from mlm.config.store import save_config
from mlm.data.prepared import PreparedData
from mlm.data.tokenizers import ByteTokenizer, CharTokenizer
from mlm.errors import CheckpointError, ConfigError, DataError
from mlm.eval.load import load_for_evaluation
from mlm.eval.locate import resolve_checkpoint
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_parameters

ALPHABET = "abcdefghijklmnopqrstuvwxyz ,.;:!?-'\n\""


def write_run(run_dir: Path, tp: int) -> dict[str, torch.Tensor]:
    """What a training run at this tp leaves: config.yaml, data.json, checkpoints/step_3."""
    mesh = mesh_of(tp, 1)
    model = tiny_model(mesh, torch.float32)
    if mesh.rank == 0:
        (run_dir / "checkpoints").mkdir(parents=True)
        config = replace(compose(["model=gpt2_tiny", f"tp={tp}"]), model=TINY)
        save_config(config, run_dir / "config.yaml")
        data = PreparedData(
            source="a test",
            embedded=False,
            datasets=(),
            tokenizer=CharTokenizer(ALPHABET).describe(),
            seq_length=TINY.seq_length,
            fingerprint="",
            ln_vocab=0.0,
        )
        (run_dir / "data.json").write_text(data.to_json())
    if mesh.world_size > 1:
        torch.distributed.barrier()
    Saver(run_dir / "checkpoints", mesh).save(TrainingState(step=3), weights(model))
    return whole_parameters(model, mesh)


def load_run(run_dir: Path, tp: int):
    mesh = mesh_of(tp, 1)
    model, config, tokenizer, description = load_for_evaluation(
        run_dir, mesh=mesh, device=torch.device("cpu")
    )
    same = load_for_evaluation(resolve_checkpoint(run_dir), mesh=mesh, device=torch.device("cpu"))
    assert same.config == config
    ids = torch.arange(8).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(model(ids), same.model(ids))
    return (
        whole_parameters(model, mesh),
        any(module.training for module in model.modules()),
        asdict(config),
        tokenizer.encode("a, b").tolist(),
        description,
    )


@pytest.mark.parametrize("trained_tp", [1, 2])
def test_weights_shape_and_tokenizer_are_the_runs_at_every_tp(pool, tmp_path, trained_tp):
    run_dir = tmp_path / "run"
    written = pool(trained_tp).run(write_run, run_dir, trained_tp)[0]
    for tp in (1, 2, 4):
        for loaded, training, config, ids, description in pool(tp).run(load_run, run_dir, tp):
            assert loaded.keys() == written.keys()
            for name, value in written.items():
                assert torch.equal(value, loaded[name]), f"{name} at tp={tp}"
            assert not training
            assert config == asdict(TINY)
            assert ids == [ALPHABET.index(c) for c in "a, b"]
            assert description["step"] == 3
            assert description["trained_with"]["tp"] == trained_tp
            json.dumps(description)


def refusals(run_dir: Path) -> None:
    write_run(run_dir, 1)
    mesh, device = mesh_of(1, 1), torch.device("cpu")
    data = json.loads((run_dir / "data.json").read_text())

    def with_tokenizer(text: str) -> None:
        (run_dir / "data.json").write_text(text)
        load_for_evaluation(run_dir, mesh=mesh, device=device)

    for broken in ("not JSON", "{}", "[]", '{"tokenizer": {}}', '{"tokenizer": {"kind": "char"}}'):
        with pytest.raises(CheckpointError, match="does not describe a tokenizer"):
            with_tokenizer(broken)
    with pytest.raises(DataError, match="has changed since"):
        with_tokenizer(json.dumps({"tokenizer": {**data["tokenizer"], "alphabet": "ab"}}))
    with pytest.raises(CheckpointError, match="a tokenizer of 257 tokens, the model has 37"):
        with_tokenizer(json.dumps({"tokenizer": ByteTokenizer().describe()}))
    with pytest.raises(ConfigError, match=r"checkpoint=.*nowhere does not exist"):
        load_for_evaluation(run_dir / "nowhere", mesh=mesh, device=device)


def test_damaged_runs_are_refused_in_a_sentence(pool, tmp_path):
    pool(1).run(refusals, tmp_path / "run")


def indivisible(run_dir: Path) -> None:
    write_run(run_dir, 1)
    mesh = mesh_of(1, 1)
    with pytest.raises(ConfigError, match="tp=3 does not divide the checkpoint's 4 heads"):
        load_for_evaluation(
            run_dir, mesh=replace(mesh, tp=replace(mesh.tp, size=3)), device=torch.device("cpu")
        )


def test_a_tp_that_does_not_divide_the_model_is_refused(pool, tmp_path):
    pool(1).run(indivisible, tmp_path / "run")

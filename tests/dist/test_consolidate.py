"""mlm-convert: one file with the full tensors, whatever layout wrote them; damage is found and named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from mlm.checkpoint.save import Saver
from mlm.checkpoint.state import TrainingState
from mlm.cli.convert.main import main
from mlm.config.compose import compose
from mlm.config.store import save_config
from tests.dist.test_checkpoint import built, everything, flip, full

safetensors = pytest.importorskip("safetensors.torch", reason="needs the package safetensors")


def save(tp: int, dp: int, run_dir: Path, huge: bool) -> dict[str, torch.Tensor]:
    mesh, model, optimizer = built(tp, dp, seed=7)
    if huge:
        model.get_parameter("final_norm.weight").data[3] = 70_000.0
    saved = full(tp, dp, model, optimizer)
    attached = {name: run_dir / name for name in ("config.yaml", "data.json")}
    saver = Saver(run_dir / "checkpoints", mesh, attached=attached)
    saver.save(TrainingState(step=3, consumed_samples=24), everything(model, optimizer))
    assert saver.outcomes()[0].error is None
    return saved


@pytest.fixture
def run(pool, tmp_path) -> Any:
    """run(tp, dp): the directory of a run with a checkpoint of that layout, and its full tensors."""

    def made(tp: int, dp: int, huge: bool = False) -> tuple[Path, dict[str, torch.Tensor]]:
        run_dir = tmp_path / "run"
        run_dir.mkdir()
        save_config(compose(["model=gpt2_tiny"]), run_dir / "config.yaml")
        (run_dir / "data.json").write_text("{}")
        return run_dir, pool(tp * dp).run(save, tp, dp, run_dir, huge)[0]

    return made


def weights_of(saved: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n.removeprefix("model."): t for n, t in saved.items() if n.startswith("model.")}


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (2, 1), (2, 2), (4, 1)])
def test_the_file_has_every_weight_to_the_bit_under_its_logical_name(run, tmp_path, capsys, tp, dp):
    run_dir, saved = run(tp, dp)
    out = tmp_path / "model.safetensors"
    assert main(["consolidate", str(run_dir), str(out)]) == 0
    assert "28 tensors" in capsys.readouterr().out
    loaded = safetensors.load_file(out)
    expected = weights_of(saved)
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    with safetensors.safe_open(out, "pt") as file:
        metadata = file.metadata()
    assert metadata["step"] == "3"
    assert json.loads(metadata["model"])["hidden_size"] == 64
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.safetensors", "run"]


def test_moments_come_along_when_asked_for_and_keep_their_dtype(run, tmp_path):
    run_dir, saved = run(2, 1)
    out = tmp_path / "all.safetensors"
    assert main(["consolidate", str(run_dir), str(out), "--optimizer", "--dtype", "bf16"]) == 0
    loaded = safetensors.load_file(out)
    moments = {name: tensor for name, tensor in saved.items() if name.startswith("optim.")}
    assert len(moments) == 2 * len(weights_of(saved))
    assert loaded.keys() == weights_of(saved).keys() | moments.keys()
    for name, tensor in moments.items():
        assert torch.equal(loaded[name], tensor)
    for name, tensor in weights_of(saved).items():
        assert torch.equal(loaded[name], tensor.bfloat16())


def test_what_fp16_cannot_hold_is_refused_by_name_and_nothing_is_left(run, tmp_path, capsys):
    run_dir, _ = run(2, 1, huge=True)
    out = tmp_path / "model.safetensors"
    assert main(["consolidate", str(run_dir), str(out), "--dtype", "fp16"]) == 1
    error = capsys.readouterr().err
    assert "final_norm.weight holds 70000, beyond what fp16 can: use --dtype bf16 or fp32" in error
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_file_that_is_there_is_replaced_only_when_told_to(run, tmp_path, capsys):
    run_dir, _ = run(1, 1)
    out = tmp_path / "model.safetensors"
    out.write_text("mine")
    assert main(["consolidate", str(run_dir), str(out)]) == 2
    assert "exists" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main(["consolidate", str(run_dir), str(out), "--overwrite"]) == 0
    assert len(safetensors.load_file(out)) == 28


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["consolidate", "nowhere", "out.safetensors"], "does not exist"),
        (["consolidate", "run", "no/such/folder/x"], "lies in no directory"),
        (["consolidate", "run", "run"], "is a directory"),
        (["verify", "nowhere"], "does not exist"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(run, tmp_path, monkeypatch, capsys, words, message):
    run(1, 1)
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_verify_says_what_a_sound_checkpoint_holds(run, capsys):
    run_dir, saved = run(2, 2)
    assert main(["verify", str(run_dir)]) == 0
    out = capsys.readouterr().out
    elements = sum(tensor.numel() for tensor in saved.values())
    assert f"{run_dir}/checkpoints/step_3: whole: 8 files" in out
    assert f"84 tensors, {elements:,} elements, none missing; step 3, 24 samples consumed" in out


DAMAGES = {
    "a truncated file": ("rank_0.safetensors", lambda p: os.truncate(p, 100)),
    "a missing file": ("rank_1.safetensors", Path.unlink),
    "a flipped bit": ("rank_1.safetensors", flip),
    "another index": ("index.json", flip),
    "no manifest": ("manifest.json", Path.unlink),
    "half a manifest": ("manifest.json", lambda p: os.truncate(p, 50)),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_named_by_both_commands_and_nothing_is_written(run, tmp_path, capsys, kind):
    run_dir, _ = run(2, 1)
    name, spoil = DAMAGES[kind]
    spoil(run_dir / "checkpoints" / "step_3" / name)
    assert main(["verify", str(run_dir)]) == 1
    said = capsys.readouterr().out
    assert "step_3: NOT whole" in said
    assert name in said
    out = tmp_path / "model.safetensors"
    assert main(["consolidate", str(run_dir / "checkpoints" / "step_3"), str(out)]) in (1, 2)
    assert name in capsys.readouterr().err
    assert not out.exists()


def test_an_index_that_forgets_a_part_is_found_though_its_checksum_is_right(run, capsys):
    from mlm.checkpoint.manifest import Manifest, read_manifest, record_of, write_manifest

    run_dir, _ = run(2, 1)
    directory = run_dir / "checkpoints" / "step_3"
    index = json.loads((directory / "index.json").read_text())
    index["tensors"]["model.embedding.word.weight"]["chunks"].pop()
    (directory / "index.json").write_text(json.dumps(index))
    manifest = read_manifest(directory)
    files = {**manifest.files, "index.json": record_of(directory / "index.json")}
    write_manifest(directory, Manifest(manifest.step, files, manifest.about))
    assert main(["verify", str(directory)]) == 1
    assert "index.json has no place for all of model.embedding.word.weight" in capsys.readouterr().out


def test_verify_names_a_checkpoint_that_was_never_completed(run, capsys):
    run_dir, _ = run(1, 1)
    (run_dir / "checkpoints" / "step_9.tmp").mkdir()
    assert main(["verify", str(run_dir)]) == 0
    assert "step_9.tmp: never completed" in capsys.readouterr().out

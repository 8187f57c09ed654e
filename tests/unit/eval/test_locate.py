"""What may be given as a checkpoint, and what is said of everything else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlm.config.schema import ModelConfig
from mlm.errors import ConfigError
from mlm.eval.locate import resolve_checkpoint, tp_problems


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 900 and 1000, and an unfinished one of step 2000."""
    run = tmp_path / "run"
    for step in (900, 1000):
        directory = run / "checkpoints" / f"step_{step}"
        directory.mkdir(parents=True)
        (directory / "manifest.json").touch()
    (run / "checkpoints" / "step_2000.tmp").mkdir()
    (run / "checkpoints" / "step_3000").mkdir()
    for name in ("config.yaml", "data.json"):
        (run / name).touch()
    return run


@pytest.mark.parametrize("inside", ["", "checkpoints", "checkpoints/step_1000", "checkpoints/../."])
def test_a_run_is_its_newest_complete_checkpoint(run_dir, inside):
    checkpoint = resolve_checkpoint(run_dir / inside)
    assert checkpoint.directory == run_dir / "checkpoints" / "step_1000"
    assert (checkpoint.run_dir, checkpoint.step) == (run_dir, 1000)
    assert checkpoint.config_path.is_file()
    assert checkpoint.data_path.is_file()


def test_a_step_directory_is_itself_by_any_relative_path(run_dir, monkeypatch):
    monkeypatch.chdir(run_dir / "checkpoints" / "step_900")
    assert resolve_checkpoint(".").step == 900
    assert resolve_checkpoint("../step_1000").step == 1000


def test_a_step_directory_with_files_of_its_own_needs_no_run_around_it(run_dir, tmp_path):
    alone = (run_dir / "checkpoints" / "step_900").rename(tmp_path / "step_900")
    for name in ("config.yaml", "data.json"):
        (alone / name).touch()
    checkpoint = resolve_checkpoint(alone)
    assert (checkpoint.config_path, checkpoint.data_path) == (alone / "config.yaml", alone / "data.json")


def refusal(path: Path | str) -> str:
    with pytest.raises(ConfigError) as raised:
        resolve_checkpoint(path)
    (problem,) = raised.value.problems
    assert problem.where == f"checkpoint={path}"
    return f"{problem.wrong}: {problem.remedy}"


def test_what_is_no_complete_checkpoint_is_refused_with_what_is_there_instead(run_dir, tmp_path):
    newest = run_dir / "checkpoints" / "step_1000"
    offer = f"the newest complete one there is {newest}"
    assert refusal(run_dir / "checkpoints" / "step_5") == f"does not exist: {offer}"
    unfinished = f"is not complete (it has no manifest.json): {offer}"
    assert refusal(run_dir / "checkpoints" / "step_2000.tmp") == unfinished
    assert refusal(run_dir / "checkpoints" / "step_3000") == unfinished
    assert refusal(run_dir / "config.yaml").startswith("is a file: name the run_dir")
    assert refusal(tmp_path / "nowhere").startswith("does not exist: name the run_dir")
    assert refusal(tmp_path).startswith("is neither a run directory nor a step_N directory of one: name")
    for step in (900, 1000):
        (run_dir / "checkpoints" / f"step_{step}" / "manifest.json").unlink()
    assert refusal(run_dir).startswith("has no complete checkpoint: train with train.save=true")


def test_a_checkpoint_taken_out_of_its_run_is_refused_with_what_is_missing(run_dir, tmp_path):
    moved = tmp_path / "elsewhere" / "step_1000"
    moved.parent.mkdir()
    (run_dir / "checkpoints" / "step_1000").rename(moved)
    assert "has no config.yaml and no data.json: name it as RUN_DIR/checkpoints/step_N" in refusal(moved)


def test_tp_must_divide_heads_mlp_and_vocabulary_and_the_remedy_names_what_does():
    model = ModelConfig(
        name="m",
        num_layers=1,
        hidden_size=48,
        num_heads=12,
        seq_length=8,
        vocab_size=100,
        padded_vocab_size=104,
    )
    assert [tp for tp in range(1, 13) if not tp_problems(model, tp)] == [1, 2, 4]
    (problem,) = tp_problems(model, 3)
    assert str(problem) == (
        "tp=3 does not divide the checkpoint's 104 rows of the vocabulary: use tp=1, 2 or 4"
    )
    (problem,) = tp_problems(model, 5)
    assert "12 heads and 192 columns of the MLP and 104 rows of the vocabulary" in str(problem)


def test_locating_a_checkpoint_imports_no_torch():
    program = "import sys, mlm.eval.locate, mlm.eval.requests; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

"""The best checkpoint: named by a file, found by it, and never deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm.checkpoint.best import BEST, Best, read_best
from mlm.checkpoint.folder import complete_steps, retire
from mlm.checkpoint.locate import resolve_checkpoint
from mlm.checkpoint.manifest import MANIFEST
from mlm.errors import ConfigError


def run_with(tmp_path: Path, *steps: int) -> Path:
    for step in steps:
        folder = tmp_path / "checkpoints" / f"step_{step}"
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text("{}")
    for name in ("config.yaml", "data.json"):
        (tmp_path / name).write_text("")
    return tmp_path / "checkpoints"


def test_the_best_checkpoint_outlives_newer_ones(tmp_path: Path):
    folder = run_with(tmp_path, 10, 20, 30, 40)
    Best(20, "accuracy", 0.8125).write(folder)
    assert read_best(folder) == Best(20, "accuracy", 0.8125)
    gone = retire(folder, keep_last=1, keep_every=0, just_written=folder / "step_40")
    assert [path.name for path in gone] == ["step_10", "step_30"]
    assert [path.name for path in complete_steps(folder)] == ["step_20", "step_40"]


def test_best_stands_for_the_checkpoint_that_it_names_and_a_run_for_its_newest(tmp_path: Path):
    folder = run_with(tmp_path, 10, 20)
    Best(10, "f1", 0.5).write(folder)
    assert resolve_checkpoint(folder / BEST).step == 10
    assert resolve_checkpoint(tmp_path).step == 20


@pytest.mark.parametrize("content", ["", "step_3", "step_x\naccuracy 1.0\n", "step_3\naccuracy\n"])
def test_a_best_that_cannot_be_read_is_none(tmp_path: Path, content: str):
    folder = run_with(tmp_path, 10)
    (folder / BEST).write_text(content)
    assert read_best(folder) is None
    with pytest.raises(ConfigError, match="is a file"):
        resolve_checkpoint(folder / BEST)

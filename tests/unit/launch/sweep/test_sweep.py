"""What `mlm-train -m` refuses, in one go and before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mlm.cli.eval import main as evaluate
from mlm.cli.train import main

Refusal = Callable[..., str]

STUDY = """\
baseline: {tp: 1}
published: table8
published_key: tp
warmup_steps: 2
points:
  - {tp: 1}
  - {tp: 3}
  - {tp: 2, optim.lr: fast}
  - {tp: 4, model.hiden_size: 8}
fixed: {model: gpt2_tiny, train.steps: 5, train.global_batch_size: 8, optim.warmup_steps: 7}
"""


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Type a command in an empty folder; it says why it does nothing, and does nothing."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("COLUMNS", "300")

    def type_in(*words: str, command: Callable[[list[str]], int] = main) -> str:
        before = sorted(work.rglob("*"))
        assert command(list(words)) == 2
        assert sorted(work.rglob("*")) == before
        said = capsys.readouterr()
        assert said.out == ""
        return said.err

    return type_in


def study(folder: Path, text: str) -> list[str]:
    (folder / "study").mkdir(exist_ok=True)
    (folder / "study" / "mine.yaml").write_text(text)
    return ["--config-dir", str(folder), "-m", "study=mine"]


def test_problems_of_all_points_come_at_once_each_with_its_points(refused):
    said = refused("-m", "model=gpt2_tiny", "tp=1,2,3", "seed=1,2", "train.stepz=5")
    assert "2 problems, nothing was started" in said
    assert "train.stepz=5 " in said, "what all points have is said without a list of them"
    assert "model.num_heads=4 (point tp=3,seed=1; tp=3,seed=2)  is not a multiple of tp=3" in said


def test_a_study_s_points_are_named_by_file_line_and_number(refused, tmp_path):
    said = re.sub(" +", " ", refused(*study(tmp_path, STUDY), "seed=x"))
    path = tmp_path / "study" / "mine.yaml"
    assert "5 problems" in said
    assert f"model.num_heads=4 ({path}:7 point 2) is not a multiple of tp=3" in said
    assert f"optim.lr=fast ({path}:8 point 3)" in said
    assert f"model.hiden_size=8 ({path}:9 point 4)" in said
    assert f"optim.warmup_steps=7 ({path}, all points) leaves no step for the decay" in said
    assert "\n seed=x is not" in said, "what was typed is nothing that the file has wrong"


def test_what_shows_only_beside_the_composed_points_is_refused_too(refused, tmp_path):
    text = "published: figure9\npublished_key: model\nwarmup_steps: 9\npoints: [{model: gpt2_tiny}]\n"
    said = refused(*study(tmp_path, f"{text}fixed: {{train.steps: 9, train.global_batch_size: 8}}"))
    path = tmp_path / "study" / "mine.yaml"
    assert "3 problems" in said
    assert f"{path} published: figure9" in said
    assert f"{path} published_key: model" in said
    assert f"{path} warmup_steps: 9 " in said
    other = "compare: masked_loss\npoints: [{model: gpt2_tiny}]\n"
    said = refused(*study(tmp_path, f"{other}fixed: {{train.steps: 9, train.global_batch_size: 8}}"))
    assert "1 problem," in said
    assert f"{path} compare: masked_loss  is no figure of objective=next_token at {path}:2 point 1" in said


def test_several_runs_need_a_folder_not_a_run_s_directory(refused):
    said = refused("-m", "model=gpt2_tiny", "train.global_batch_size=8", "seed=1,2", "run_dir=here")
    assert "run_dir=here  names one directory, and -m makes several  use sweep_dir=DIR" in said


def test_one_run_takes_no_study_no_sweep_dir_and_one_value(refused):
    said = refused("study=strong_scaling", "sweep_dir=here", "model=gpt2_tiny", "tp=1,2")
    assert "study=strong_scaling  is a study of several runs" in said
    assert "add -m: mlm-train -m study=strong_scaling" in said
    assert "choose one: tp=1, or add -m for a run with each" in said
    assert "is for several runs, and this is one" in said


def test_evaluation_has_no_sweeps(refused):
    said = refused("-m", "checkpoint=nowhere", "tp=1,2", command=evaluate)
    assert "-m " in said
    assert "add -m" not in said


@pytest.mark.parametrize(
    ("environment", "starter"),
    [
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "torchrun"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, "the environment"),
    ],
)
def test_inside_somebody_s_step_it_is_refused(refused, monkeypatch, environment, starter):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    said = refused("-m", "model=gpt2_tiny", "train.global_batch_size=8", "seed=1,2")
    assert f"that {starter} started" in said
    assert "call it outside of that step" in said


def test_inside_a_step_only_the_first_rank_speaks(refused, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert refused("-m", "model=gpt2_tiny", "seed=1,2") == ""


def test_when_this_machine_can_run_no_point_nothing_is_written(refused):
    words = ["-m", "model=gpt2_8b", "model.hidden_size=98304", "tp=1,2", "launch.device=cpu"]
    said = refused(*words, "train.global_batch_size=8")
    assert "2 problems, nothing was started" in said
    assert "this machine has" in said


def test_a_folder_of_something_else_is_refused(refused, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    said = refused("-m", "model=gpt2_tiny", "train.global_batch_size=8", f"sweep_dir={tmp_path / 'other'}")
    assert "already holds files, which is never overwritten" in said

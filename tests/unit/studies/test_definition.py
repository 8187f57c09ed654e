"""A study's file is read whole or refused with everything that is wrong in it, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm.errors import ConfigError, Problem
from mlm.studies.definition import Definition, find_studies, read_definition

GOOD = """\
# A study of mine
title: Mine
scaling: strong
repeats: 2
steps: 30
warmup_steps: 4
baseline: {tp: 1}
published: table8
published_key: tp
points:
  - {tp: 1}
  - {tp: 2, series: tensor parallel}
fixed:
  model: gpt2_tiny
  train.save: false
  optim.clip_grad_norm: null
  data.split: [80, 10, 10]
"""


def read(folder: Path, text: str, name: str = "mine") -> Definition:
    (folder / "study").mkdir(exist_ok=True)
    (folder / "study" / f"{name}.yaml").write_text(text)
    return read_definition(name, [folder])


def problems(folder: Path, text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as refused:
        read(folder, text)
    return refused.value.problems


def test_a_study_is_what_its_file_says(tmp_path):
    study = read(tmp_path, GOOD)
    assert (study.name, study.title, study.scaling) == ("mine", "Mine", "strong")
    assert (study.repeats, study.warmup_steps) == (2, 4)
    assert (study.published, study.published_key) == ("table8", "tp")
    assert [point.overrides for point in study.points] == [["tp=1"], ["tp=2"]]
    assert [point.series for point in study.points] == [None, "tensor parallel"]
    assert study.baseline is study.points[0]
    assert not study.adds_baseline
    assert dict(study.fixed) == {
        "model": "gpt2_tiny",
        "train.save": "false",
        "optim.clip_grad_norm": "null",
        "data.split": "[80,10,10]",
        "train.steps": "30",
    }


def test_everything_but_the_points_may_be_left_out(tmp_path):
    study = read(tmp_path, "points: [{seed: 1}]")
    assert (study.name, study.title, study.repeats, study.warmup_steps) == ("mine", "mine", 1, 0)
    assert (study.scaling, study.baseline, study.published, dict(study.fixed)) == (None, None, None, {})


def test_a_baseline_that_is_no_point_becomes_the_first_one(tmp_path):
    study = read(tmp_path, GOOD.replace("baseline: {tp: 1}", "baseline: {tp: 1, dp: 1}"))
    assert [point.overrides for point in study.points] == [["tp=1", "dp=1"], ["tp=1"], ["tp=2"]]
    assert study.baseline is study.points[0]
    assert study.adds_baseline


def test_a_user_s_study_comes_before_a_shipped_one_and_is_listed_with_its_description(tmp_path):
    read(tmp_path, GOOD, "weak_scaling_cpu")
    found = {option.name: option for option in find_studies([tmp_path])}
    assert found["weak_scaling_cpu"].description == "A study of mine"
    assert found["weak_scaling_cpu"].path == tmp_path / "study" / "weak_scaling_cpu.yaml"
    assert "strong_scaling" in found


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        ("repeats: 2", "repeat: 2", ":4 repeat", "is no key of a study: use repeats"),
        ("repeats: 2", "repeats: 0", ":4 repeats: 0", "is not a whole number of at least 1"),
        ("repeats: 2", "repeats: true", ":4 repeats: True", "is not a whole number of at least 1"),
        ("steps: 30", "steps: 1.5", ":5 steps: 1.5", "is not a whole number of at least 1"),
        ("warmup_steps: 4", "warmup_steps: -1", ":6 warmup_steps: -1", "is not a whole number of at least 0"),
        ("scaling: strong", "scaling: wide", ":3 scaling: wide", "is neither weak, strong nor null"),
        ("title: Mine", "title: 5", ":2 title: 5", "is not text"),
        ("published_key: tp\n", "", ":8 published", "and published_key belong together"),
        ("published_key: tp", "published_key: seed", ":9 published_key: seed", "is set by no point"),
        ("  - {tp: 1}\n", "  - tp\n", ":11 point 1", "is not a mapping of overrides"),
        ("  - {tp: 1}\n", "  - {}\n", ":11 point 1", "is not a mapping of overrides"),
        ("{tp: 2, series: tensor parallel}", "{tp: 1}", ":12 point 2", "is there already"),
        ("series: tensor parallel", "series: 3", ":12 point 2", "has series: 3, which is no text"),
        ("{tp: 2,", "{train: {steps: 2},", ":12 point 2", "nests train: write dotted keys: train.steps: 2"),
        ("{tp: 2,", "{run_dir: x,", ":12 point 2", "sets run_dir, which only the command line can"),
        ("baseline: {tp: 1}", "baseline: 1", ":7 baseline", "is not a mapping of overrides"),
        ("fixed:", "fixed: 3\npoints2:", ":13 fixed", "is not a mapping of overrides"),
        ("  train.save: false", "  train.steps: 3", ":5 steps", "is the same as fixed train.steps"),
        ("  train.save: false", "  model: gpt2_8b", ":15 model", "is there a second time: keep one of them"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, old, new, where, says):
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new, 1))
    path = tmp_path / "study" / "mine.yaml"
    assert any(p.where.startswith(f"{path}{where}") and says in str(p) for p in found), list(map(str, found))


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    text = GOOD.replace("scaling: strong", "scalling: strong").replace("repeats: 2", "repeats: none")
    text = text.replace("{tp: 1}\n  -", "tp\n  -").replace("published: table8\n", "")
    assert len(problems(tmp_path, text)) == 4


LOSSES = """\
compare: masked_loss
panels: [model.num_layers, optim.lr]
curves: model.layernorm
points:
  - {model.num_layers: 2, optim.lr: 1.0e-3, model.layernorm: pre}
  - {model.num_layers: 2, optim.lr: 1.0e-3, model.layernorm: post}
"""


def test_a_study_of_losses_names_what_it_compares_and_how_its_figure_is_arranged(tmp_path):
    study = read(tmp_path, LOSSES)
    assert (study.compare, study.curves) == ("masked_loss", "model.layernorm")
    assert study.panels == ("model.num_layers", "optim.lr")
    assert read(tmp_path, LOSSES.replace("[model.num_layers, optim.lr]", "optim.lr")).panels == ("optim.lr",)
    other = read(tmp_path, GOOD)
    assert (other.compare, other.panels, other.curves) == (None, (), None)


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        ("masked_loss", "beauty", ":1 compare: beauty", "is nothing to compare by: use loss"),
        ("masked_loss", "[loss]", ":1 compare: ['loss']", "is not text"),
        ("optim.lr]", "optim.lr, seed]", ":2 panels", "is neither a key nor two of them"),
        ("[model.num_layers, optim.lr]", "3", ":2 panels: 3", "is neither a key nor two of them"),
        ("optim.lr]", "seed]", ":2 panels: seed", "is not set by every point"),
        ("model.layernorm: post", "seed: 1", ":3 curves: model.layernorm", "is not set by every point"),
        ("compare: masked_loss", "name: x", ":2 panels: optim.lr", "is for a study that compares losses"),
        ("points:", "scaling: weak\npoints:", ":4 scaling", "is for a study that compares speed"),
        ("points:", "baseline: {seed: 1}\npoints:", ":4 baseline", "is for a study that compares speed"),
    ],
)
def test_what_is_wrong_with_a_comparison_of_losses_is_named_with_its_line(tmp_path, old, new, where, says):
    assert old in LOSSES
    found = problems(tmp_path, LOSSES.replace(old, new, 1))
    path = tmp_path / "study" / "mine.yaml"
    assert any(p.where.startswith(f"{path}{where}") and says in str(p) for p in found), list(map(str, found))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a mapping"),
        ("[1]", "is not a mapping"),
        ("points: [", "cannot be read as YAML at line 1"),
        ("title: Mine", "is not a list of points"),
        ("points: []", "is not a list of points"),
        ("points: {tp: 1}", "is not a list of points"),
    ],
)
def test_a_file_that_is_no_study_is_refused(tmp_path, text, says):
    assert says in str(problems(tmp_path, text)[0])


def test_a_name_that_is_none_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="study=strong_skaling is no study: use study=strong_scaling"):
        read_definition("strong_skaling")

"""A plain sweep is Hydra's product of values, a study its own pairs; each point has one readable name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.sweeper import Sweeper

from mlm.config.locate import search_dirs
from mlm.errors import ConfigError
from mlm.studies.definition import read_definition
from mlm.studies.sweeper import PointSweeper, SweptPoint, drive
from mlm.studies.values import labels

STUDY = """\
baseline: {model: gpt2_tiny, tp: 1, seed: 9}
points:
  - {model: gpt2_tiny, tp: 1}
  - {model: gpt2_7m, tp: 2, train.steps: 7, series: larger}
fixed: {train.steps: 5, optim.lr: 0.5}
"""


def swept(arguments: Sequence[str]) -> list[SweptPoint]:
    return drive(PointSweeper(), lambda point: point, arguments, search_dirs())


def of_study(folder: Path, arguments: Sequence[str], text: str = STUDY) -> list[SweptPoint]:
    (folder / "study").mkdir(exist_ok=True)
    (folder / "study" / "mine.yaml").write_text(text)
    sweeper = PointSweeper(read_definition("mine", [folder]))
    return drive(sweeper, lambda point: point, arguments, search_dirs())


@pytest.mark.parametrize(
    "arguments",
    [
        ["tp=1,2", "seed=3,4,5"],
        ["seed=range(1,4)", "model=choice(gpt2_tiny,gpt2_7m)"],
        ["optim.lr=1e-3,3e-4", "train.steps=10", "data.split=[90,10,0],[80,20,0]"],
        ["eval.tasks=[lambada,wikitext103]", "tp=1"],
        ["data.name='a b','c,d'", "tp=sort(4,2,1)"],
    ],
)
def test_a_product_is_the_one_that_hydra_s_own_sweeper_makes(arguments):
    parsed = OverridesParser.create().parse_overrides(arguments)
    expected = BasicSweeper.split_arguments(parsed, max_batch_size=None)[0]
    spaceless = [[word.replace(" ", "") for word in point] for point in expected]
    assert [[word.replace(" ", "") for word in p.overrides] for p in swept(arguments)] == spaceless


def test_a_glob_picks_options_of_a_group():
    found = [point.overrides for point in swept(["model=glob(gpt2_*b)"])]
    assert found == [("model=gpt2_1b",), ("model=gpt2_2b",), ("model=gpt2_4b",), ("model=gpt2_8b",)]


def test_the_sweeper_is_hydra_s_and_hands_each_point_to_the_task():
    sweeper, seen = PointSweeper(), []
    assert isinstance(sweeper, Sweeper)
    assert drive(sweeper, lambda p: seen.append(p.number) or p.label, ["tp=1,2"], search_dirs()) == [
        "tp=1",
        "tp=2",
    ]
    assert seen == [1, 2]


def test_a_shuffled_sweep_keeps_its_order_from_one_sweep_to_the_next():
    sweeper, argument = PointSweeper(), "seed=shuffle(range(100))"
    first, second = (drive(sweeper, lambda p: p.label, [argument], search_dirs()) for _ in range(2))
    assert first == second
    assert sorted(first) != first


def test_a_list_is_one_value_and_text_that_hydra_cannot_read_is_left_as_it_is():
    (point,) = swept(["eval.tasks=[a,b]", "data.path=~/C(1)/x=y", "no override at all"])
    assert point.overrides == ("eval.tasks=[a,b]", "data.path=~/C(1)/x=y", "no override at all")
    assert point.label == "run"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["optim.lr=interval(0,1)"], "is a range without steps"),
        (["model=glob(bart_*)"], "matches nothing"),
        (["seed=range(2000)"], "makes 2,000 points, and a sweep takes 1,000"),
    ],
)
def test_what_makes_no_sweep_is_refused_before_the_first_task(arguments, says):
    with pytest.raises(ConfigError, match=says):
        drive(PointSweeper(), pytest.fail, arguments, search_dirs())


def test_a_study_s_points_win_over_what_is_fixed_and_what_is_typed_wins_too(tmp_path):
    points = of_study(tmp_path, ["optim.lr=3", "precision=fp32"])
    typed = {"optim.lr=3", "precision=fp32"}
    assert [set(point.overrides) for point in points] == [
        {"model=gpt2_tiny", "tp=1", "seed=9", "train.steps=5"} | typed,
        {"model=gpt2_tiny", "tp=1", "train.steps=5"} | typed,
        {"model=gpt2_7m", "tp=2", "train.steps=7"} | typed,
    ]
    assert all(len(point.overrides) == len(set(point.overrides)) for point in points)
    assert [point.series for point in points] == [None, None, "larger"]
    assert [point.is_baseline for point in points] == [True, False, False]
    assert [point.label for point in points] == [
        "model=gpt2_tiny,tp=1,seed=9",
        "model=gpt2_tiny,tp=1",
        "model=gpt2_7m,tp=2,steps=7",
    ]


def test_what_the_points_vary_is_not_to_be_typed_and_takes_one_value(tmp_path):
    with pytest.raises(ConfigError) as refused:
        of_study(tmp_path, ["tp=4", "model=gpt2_8b", "seed=1", "precision=fp32,bf16"])
    wrong = {problem.where: problem.wrong for problem in refused.value.problems}
    vary = "is what the points of study=mine vary"
    assert {key: wrong[key] for key in ("tp=4", "model=gpt2_8b", "seed=1")} == dict.fromkeys(
        ("tp=4", "model=gpt2_8b", "seed=1"), vary
    )
    assert wrong["precision=fp32,bf16"].startswith("gives several values")


def test_labels_drop_sections_only_where_no_doubt_is_left():
    assert labels([{"model.hidden_size": "64", "tp": "2"}]) == ["hidden_size=64,tp=2"]
    assert labels([{"model.name": "a", "optim.name": "b"}]) == ["model.name=a,optim.name=b"]


def test_labels_are_unique_names_of_directories_whatever_the_values(tmp_path):
    long = "x" * 300
    values = ["a/b", "a:b", "a b", "'a*b'", long, long + "y", "null", "[1,2]", "../.."]
    found = labels([{"data.name": value} for value in values])
    assert len(set(found)) == len(values)
    for label in found:
        (tmp_path / label).mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(found)

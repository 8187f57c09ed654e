"""One composition for every command: mlm-eval's keys, and mappings whose entries the user names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mlm.config.command import EVAL, GENERATE, TRAIN, Spec
from mlm.config.compose import compose, load_config, save_config
from mlm.config.fields import schema_fields
from mlm.config.ranges import EVAL_RANGES, GENERATE_RANGES, Range
from mlm.config.schema import EvalConfig
from mlm.errors import ConfigError, Problem


def evaluation(*words: str) -> EvalConfig:
    return compose(words, [], EVAL)


def refused(*words: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        evaluation(*words)
    return caught.value.problems


@pytest.mark.parametrize(("spec", "ranges"), [(EVAL, EVAL_RANGES), (GENERATE, GENERATE_RANGES)])
def test_every_number_has_a_range(spec: Spec[Any], ranges: dict[str, Range]) -> None:
    numeric = {key for key, field in schema_fields(spec.schema).items() if field.is_number}
    assert set(ranges) == numeric


def test_impossible_numbers_are_found_together() -> None:
    found = EVAL.check(evaluation("tp=0", "dp=-1", "limit=0", "batch_tokens=0", "launch.timeout_s=nan"))
    assert [p.where for p in found] == [
        "launch.timeout_s=nan",
        "tp=0",
        "dp=-1",
        "batch_tokens=0",
        "limit=0",
    ]


def test_each_command_knows_its_own_keys_only() -> None:
    assert refused("train.steps=3")[0].wrong == "is no such key"
    with pytest.raises(ConfigError, match="batch_tokens=4 is no such key"):
        compose(["batch_tokens=4"])
    assert "mlm-eval --help" in refused("sdfgh=3")[0].remedy


def test_entries_of_a_mapping_are_text_and_become_absolute_paths() -> None:
    config = evaluation("task_paths.lambada=~/a.jsonl", "task_paths.wikitext103.raw=007")
    home, here = os.path.expanduser("~"), os.getcwd()
    assert config.task_paths == {"lambada": f"{home}/a.jsonl", "wikitext103.raw": f"{here}/007"}
    inner = compose(["eval.task_paths.lambada=x", "eval.tasks=[lambada]"])
    assert inner.eval.task_paths == {"lambada": f"{here}/x"}
    assert inner.eval.tasks == ["lambada"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_task_s_first_and_further_file_can_be_given_together(order: int) -> None:
    words = ["task_paths.wikitext103=/a", "task_paths.wikitext103.raw=/b"][::order]
    assert evaluation(*words).task_paths == {"wikitext103": "/a", "wikitext103.raw": "/b"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("task_paths=x", "is not a mapping of names"),
        ("task_paths.lambada=[a,b]", "is not text"),
        ("task_paths.lambada=null", "may not be null"),
        ("task_paths.lambada=", "gives no value"),
        ("tasks=lambada", "is not a list"),
        ("tasks=a,b", "gives several values"),
        ("tasks=[1]", "is not text"),
        ("tasks=null", "may not be null"),
    ],
)
def test_a_mapping_or_list_of_another_form_is_refused(word: str, said: str) -> None:
    (problem,) = refused(word)
    assert problem.where == word
    assert said in problem.wrong


def test_a_mistyped_mapping_is_recognised_with_its_entry() -> None:
    (problem,) = refused("task_path.lambada=x")
    assert problem.remedy == "use task_paths.lambada=x"


def test_an_entry_given_twice_is_refused() -> None:
    (problem,) = refused("task_paths.lambada=x", "task_paths.lambada=y")
    assert "a second time" in problem.wrong


def test_mappings_can_stand_in_a_file_of_one_s_own(tmp_path: Path) -> None:
    group = tmp_path / "precision"
    group.mkdir()
    (group / "mine.yaml").write_text(
        "# @package _global_\n# mine\nprecision: {name: fp32}\ntask_paths: {lambada: /x, a.b: /y}\n"
    )
    config = compose(["precision=mine", "task_paths.lambada=/z"], [tmp_path], EVAL)
    assert config.task_paths == {"lambada": "/z", "a.b": "/y"}


def test_the_resolved_configuration_of_an_evaluation_survives_its_file(tmp_path: Path) -> None:
    config = evaluation("checkpoint=runs/x", "task_paths.a.b=/c", "tp=2", "limit=1e3")
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml", EvalConfig) == config
    assert config.limit == 1000


def test_an_interval_without_tasks_is_refused() -> None:
    (problem,) = TRAIN.check(compose(["model=gpt2_tiny", "eval.interval=5"]))
    assert problem.where == "eval.interval=5"

"""compose(): what is typed becomes the typed value, and everything wrong is said at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlm.config.compose import compose
from mlm.config.schema import Gelu, TrainConfig
from mlm.errors import ConfigError, Problem


def refused(overrides: list[str], config_dirs: list[Path] | None = None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        compose(overrides, config_dirs or [])
    return caught.value.problems


def only(overrides: list[str], config_dirs: list[Path] | None = None) -> Problem:
    problems = refused(overrides, config_dirs)
    assert len(problems) == 1, [str(p) for p in problems]
    return problems[0]


def get(config: TrainConfig, key: str) -> object:
    value: object = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("optim.lr=1e-4", 1e-4),
        ("optim.lr=1", 1.0),
        ("optim.lr=1E-4", 1e-4),
        ("train.steps=1e3", 1000),
        ("train.steps=1_000", 1000),
        ("model.gelu=erf", Gelu.erf),
        ("model.bias=false", False),
        ("optim.clip_grad_norm=null", None),
        ("data.split=[100,0,0]", [100.0, 0.0, 0.0]),
        ("data.split=[0.9, 0.1]", [0.9, 0.1]),
        ("model.name=1E5", "1E5"),
        ("model.name=007", "007"),
        ("model.name='a b'", "a b"),
        ("logger.project=true", "true"),
        ("train.eval_samples=${train.micro_batch_size}", 8),
        ("tp=2", 2),
        ("data.path=/a(1)/b=c~", "/a(1)/b=c~"),
    ],
)
def test_a_typed_value_has_the_type_of_its_field(override: str, value: object) -> None:
    got = get(compose([override]), override.partition("=")[0])
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("override", "wrong"),
    [
        ("train.steps=1.5", "is not a whole number"),
        ("train.steps=many", "is not a whole number"),
        ("train.steps=nan", "is not a whole number"),
        ("train.steps=inf", "is not a whole number"),
        ("train.steps=true", "is not a whole number"),
        ("tp=null", "may not be null"),
        ("optim.lr=abc", "is not a number"),
        ("optim.lr=false", "is not a number"),
        ("optim.lr='1e-4'", "is not a number"),
        ("model.bias=1", "is not true or false"),
        ("model.gelu=relu", "is not tanh or erf"),
        ("data.split=90", "is not a list"),
        ("data.split=[90,ten]", "is not a number"),
        ("data.path={a: 1}", "is not text"),
        ("data.path=[a,b]", "is not text"),
        ("model.name=''", "is empty"),
        ("data.path=${nowhere}", "refers to something that is not there"),
        ("data.path=x/${data.nowhere}/y", "refers to something that is not there"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_key(override: str, wrong: str) -> None:
    problem = only([override])
    assert problem.where.startswith(override.partition("=")[0])
    assert wrong in problem.wrong
    assert problem.remedy


def test_every_problem_is_reported_not_only_the_first() -> None:
    overrides = ["optim.lr=abc", "+foo=1", "model.hiden_size=3", "train.steps=1.5", "model.num_heads=5"]
    said = refused(overrides)
    assert {p.where.partition("=")[0] for p in said} == {
        "optim.lr",
        "+foo",
        "model.hiden_size",
        "train.steps",
        "model.hidden_size",  # 64 has no 5 heads: what the rest of the configuration has wrong
    }


def test_a_mistyped_group_option_does_not_drag_in_the_problems_of_another_model() -> None:
    problem = only(["model=gpt2_8", "tp=3"])
    assert problem.where == "model=gpt2_8"
    assert "model=gpt2_8b" in problem.remedy


def test_a_model_brings_its_tokenizer_and_the_command_line_still_wins() -> None:
    assert compose(["model=gpt2_tiny"]).tokenizer.kind == "byte"
    assert compose(["model=gpt2_124m"]).tokenizer.kind == "gpt2"
    assert compose(["model=gpt2_tiny", "tokenizer=char"]).tokenizer.kind == "char"
    assert compose(["tokenizer=char", "model=gpt2_tiny"]).tokenizer.kind == "char"
    assert compose(["experiment=quickstart", "tokenizer=byte"]).tokenizer.kind == "byte"


def test_an_experiment_tokenizer_wins_over_its_model_s(tmp_path: Path) -> None:
    text = (
        "# @package _global_\ndefaults:\n  - override /model: gpt2_8b\n  - override /tokenizer: char\ntp: 8\n"
    )
    write(tmp_path, "experiment/mine.yaml", text)
    config = compose(["experiment=mine"], [tmp_path])
    assert (config.model.name, config.tokenizer.kind, config.tp) == ("gpt2_8b", "char", 8)
    assert compose(["experiment=mine", "tokenizer=byte"], [tmp_path]).tokenizer.kind == "byte"


def test_a_value_typed_wins_over_an_experiment_and_a_model_typed_replaces_its_model() -> None:
    config = compose(["experiment=quickstart", "train.steps=7", "model=gpt2_8b"])
    assert (config.train.steps, config.model.num_layers, config.model.hidden_size) == (7, 72, 3072)


def test_no_experiment_can_be_asked_for() -> None:
    assert compose(["experiment=null"]) == compose([])


def test_a_user_s_model_is_found_first_and_may_build_on_a_shipped_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write(first, "model/mine.yaml", "# mine\ndefaults:\n  - gpt2_8b\n  - _self_\nname: mine\nnum_layers: 2\n")
    write(second, "model/mine.yaml", "# hidden by the first\nname: not mine\n")
    write(second, "model/team/small.yaml", "defaults: [/model/gpt2_tiny@_here_, _self_]\nname: small\n")
    model = compose(["model=mine"], [first, second]).model
    assert (model.name, model.num_layers, model.hidden_size) == ("mine", 2, 3072)
    assert compose(["model=team/small"], [first, second]).model.name == "small"


def test_numbers_in_a_user_s_yaml_are_numbers_without_a_dot_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        "optim/mine.yaml",
        "name: mine\nlr: 1e-3\nmin_lr: 1E-4\nwarmup_steps: 1e2\nweight_decay: 0\n",
    )
    optim = compose(["optim=mine"], [tmp_path]).optim
    assert (optim.lr, optim.min_lr, optim.warmup_steps, optim.weight_decay) == (1e-3, 1e-4, 100, 0.0)
    assert type(optim.warmup_steps) is int
    assert type(optim.weight_decay) is float


def test_mistakes_in_a_user_s_yaml_are_all_named_with_the_file(tmp_path: Path) -> None:
    text = "defaults: [gpt2_tiny]\nhiden_size: 8\nnum_heads: four\nffn_hidden_size: ${nowhere}\nname: 7\n"
    path = write(tmp_path, "model/mine.yaml", text)
    problems = refused(["model=mine"], [tmp_path])
    named = {p.where.partition("=")[0] for p in problems}
    assert named == {"model.hiden_size", "model.num_heads", "model.ffn_hidden_size", "model.name"}
    assert all(str(path) in p.wrong for p in problems)
    assert any("model.hidden_size" in p.remedy for p in problems)


def test_a_group_named_in_the_body_of_an_experiment_is_explained(tmp_path: Path) -> None:
    write(tmp_path, "experiment/mine.yaml", "# @package _global_\nmodel: gpt2_8b\n")
    problem = only(["experiment=mine"], [tmp_path])
    assert "override /model" in problem.remedy


@pytest.mark.parametrize(
    "text",
    [
        "name: [unclosed\n",
        "defaults: [/model/nowhere]\n",
        "defaults:\n  - override /nowhere: x\n",
        "defaults:\n  - gpt2_tiny\n  - gpt2_tinny\n",
        "- a\n- list\n",
    ],
)
def test_a_file_that_does_not_compose_is_one_sentence(tmp_path: Path, text: str) -> None:
    write(tmp_path, "model/mine.yaml", text)
    problem = only(["model=mine"], [tmp_path])
    assert "mine" in str(problem)
    assert "\n" not in str(problem)


def test_a_missing_value_names_its_key() -> None:
    problem = only(["data=indexed"])
    assert problem.where == "data.path"
    assert "is not set" in problem.wrong


def test_a_missing_value_inside_a_string_is_not_used_literally(tmp_path: Path) -> None:
    write(tmp_path, "logger/mine.yaml", "kind: none\nproject: x-${data.path}\n")
    keys = {p.where.partition("=")[0] for p in refused(["logger=mine", "data=indexed"], [tmp_path])}
    assert keys == {"data.path", "logger.project"}


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "nowhere" in only([], [tmp_path / "nowhere"]).where


def test_relative_paths_are_resolved_against_the_directory_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    keys = ["data.path=../texts/wiki", "tokenizer.path=a/../b.model", "data.cache_dir=~/cache", "run_dir=1E5"]
    config = compose(["data=indexed", "tokenizer=sentencepiece", *keys])
    assert config.data.path == str(tmp_path.parent / "texts/wiki")
    assert config.tokenizer.path == str(tmp_path / "b.model")
    assert config.data.cache_dir == "/home/somebody/cache"
    assert config.run_dir == str(tmp_path / "1E5")
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_composing_twice_in_one_process_gives_the_same_and_leaves_nothing_behind() -> None:
    before = dict(os.environ)
    assert compose(["experiment=quickstart"]) == compose(["experiment=quickstart"])
    assert dict(os.environ) == before


def test_neither_composing_nor_planning_imports_torch_and_loading_imports_no_hydra(tmp_path: Path) -> None:
    program = f"""
import sys
from mlm.config.compose import load_config, save_config, compose
import mlm.plan.parameters, mlm.plan.flops, mlm.plan.memory, mlm.plan.groups, mlm.plan.hardware
assert "hydra" not in sys.modules and "omegaconf" not in sys.modules
save_config(compose(["tp=2"]), {str(tmp_path / "c.yaml")!r})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    program = f"""
import sys
from mlm.config.compose import load_config
assert load_config({str(tmp_path / "c.yaml")!r}).tp == 2
assert "hydra" not in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)

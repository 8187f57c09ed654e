"""Two configurations are the same run exactly when nothing that a run computes differs between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlm.config.compose import compose, describe_groups
from mlm.config.store import load_config, save_config
from mlm.studies.identity import asked, config_hash, is_finished
from tests.unit.studies.writing import as_run, finish

MODELS = [
    option.name
    for group in describe_groups()
    if group.name == "model"
    for option in group.options
    if option.name != "from_checkpoint"  # stands for the model of a checkpoint, of which there is none here
]
CASES = [[f"model={name}"] for name in MODELS] + [
    ["profile=true"],
    ["profile=true", "profile_steps=[3,4]"],
    ["precision=bf16", "launch.threads=3", "dp=2"],
    ["tokenizer=sentencepiece", "tokenizer.vocab_size=200"],
    ["optim.decay_steps=500", "optim.clip_grad_norm=null", "train.eval_samples=null"],
    ["data=blend", "data.blend=[{weight: 0.3, path: /a}, {weight: 0.7, path: /b}]"],
]


@pytest.mark.parametrize("overrides", CASES, ids=" ".join)
def test_a_run_s_config_yaml_has_the_hash_of_what_was_asked_for(overrides, tmp_path):
    config = compose(overrides)
    save_config(as_run(config, tmp_path / "somewhere"), tmp_path / "config.yaml")
    written = load_config(tmp_path / "config.yaml")
    assert config_hash(written, asked(config)) == config_hash(config)


@pytest.mark.parametrize(
    "override",
    [
        "tp=2",
        "dp=2",
        "seed=2",
        "train.steps=7",
        "optim.lr=1e-3",
        "model.num_layers=3",
        "precision=bf16",
        "launch.threads=2",
        "launch.device=cpu",
        "data.split=[80,10,10]",
        "model.dropout=0",
        "eval.limit=3",
        "data.blend=[{weight: 1, path: /a}]",
    ],
)
def test_what_changes_a_run_changes_its_hash(override):
    assert config_hash(compose([override])) != config_hash(compose([]))


@pytest.mark.parametrize(
    "override",
    [
        "run_dir=elsewhere",
        "sweep_dir=elsewhere",
        "launch=local",
        "launch=dry_run",
        "launch.timeout_s=5",
        "launch.failure_grace_s=1",
        "logger=tensorboard",
        "logger.project=other",
        "data.cache_dir=elsewhere",
    ],
)
def test_what_changes_no_run_changes_no_hash(override):
    assert config_hash(compose([override])) == config_hash(compose([]))


def test_asking_for_a_value_is_not_the_same_as_being_given_it():
    assert config_hash(compose(["launch.threads=2"])) != config_hash(
        as_run(compose([]), Path("x"), threads=2)
    )
    open_values = asked(compose([]))
    assert config_hash(as_run(compose([]), Path("x"), threads=2), open_values) == config_hash(
        as_run(compose([]), Path("y"), threads=8), open_values
    )


def test_a_run_is_finished_by_its_summary_and_the_same_configuration_only(tmp_path):
    config = compose(["tp=2"])
    wanted, left_open = config_hash(config), asked(config)
    assert not is_finished(tmp_path, wanted, left_open)
    finish(tmp_path, ["tp=2"])
    assert is_finished(tmp_path, wanted, left_open)

    other = replace(config, seed=7)
    assert not is_finished(tmp_path, config_hash(other), asked(other))
    (tmp_path / "config.yaml").write_text("model: [")
    assert not is_finished(tmp_path, wanted, left_open)
    finish(tmp_path, ["tp=2"])
    (tmp_path / "summary.json").unlink()
    assert not is_finished(tmp_path, wanted, left_open)


def test_a_run_of_an_earlier_version_without_some_fields_stays_finished(tmp_path):
    config = compose(["tp=2", "train.steps=3"])
    finish(tmp_path, ["tp=2", "train.steps=3"])
    path = tmp_path / "config.yaml"
    lines = path.read_text().splitlines()
    older = [line for line in lines if not line.startswith(("profile", "deterministic", "  sample_tokens"))]
    assert len(older) < len(lines) - 2
    path.write_text("\n".join(older) + "\n")
    assert is_finished(tmp_path, config_hash(config), asked(config))

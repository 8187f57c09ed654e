"""The arguments of the model mlm: what they decide, and what is refused before a process is started."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mlm.cli import harness
from mlm.config.store import load_config, save_config
from mlm.errors import ConfigError
from mlm.harness.settings import ARGUMENTS, settle
from mlm.launch.machine import Machine
from tests.random_run import write_run

CPUS = Machine(cores=4, memory_bytes=8 << 30)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "first")


def problems(environment: dict[str, str] | None = None, **arguments: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        settle(arguments, environment or {}, detect=lambda _: CPUS)
    return [f"{problem.where} {problem.wrong}" for problem in refused.value.problems]


def test_what_is_not_said_is_decided_by_checkpoint_and_machine(run_dir):
    settings = settle({"checkpoint": str(run_dir), "tp": 2}, {}, detect=lambda _: CPUS)
    config = settings.config
    assert config.checkpoint == str(run_dir / "checkpoints" / "step_3")
    assert (config.tp, config.dp, config.launch.device, config.launch.threads) == (2, 1, "cpu", 2)
    assert config.precision.name == "fp32"
    assert settings.launch.processes == 2
    assert (settings.max_length, settings.max_gen_toks, settings.prefix_token_id) == (128, 256, None)


def test_arguments_have_their_say(run_dir):
    said = {"dp": 3, "precision": "bf16", "device": "cpu", "threads": 5, "batch_tokens": 77}
    more = {"max_length": 64, "max_gen_toks": 9, "prefix_token_id": 10, "seed": 4}
    settings = settle({"checkpoint": str(run_dir), **said, **more}, {}, detect=lambda _: CPUS)
    config = settings.config
    assert (config.dp, config.precision.name, config.launch.threads) == (3, "bf16", 5)
    assert config.batch_tokens == 77
    assert (settings.max_length, settings.max_gen_toks, settings.prefix_token_id, settings.seed) == (
        64,
        9,
        10,
        4,
    )


def test_all_that_is_wrong_is_said_at_once_in_the_words_of_model_args(run_dir):
    found = problems(
        checkpoint=run_dir,
        tp=3,
        precison="bf16",
        device="tpu",
        threads=0,
        dp="two",
        max_length=4096,
        prefix_token_id=-1,
    )
    assert found == [
        "precison=bf16 is no argument of the model mlm",
        "dp=two is not a whole number",
        "device=tpu is not auto, cuda or cpu",
        "threads=0 is not at least 1",
        "tp=3 does not divide the checkpoint's 4 heads and 256 columns of the MLP",
        "max_length=4096 exceeds the model's context of 128",
        "prefix_token_id=-1 is not in the model's vocabulary of 257",
    ]


def test_a_checkpoint_that_is_not_there_or_not_named_is_refused(tmp_path):
    assert problems(tp=2) == ["checkpoint is not set"]
    assert problems(checkpoint=str(tmp_path / "none")) == [f"checkpoint={tmp_path / 'none'} does not exist"]


def test_a_damaged_checkpoint_is_refused_by_the_name_of_its_file(run_dir, tmp_path):
    other = write_run(tmp_path / "run")
    tensors = max((other / "checkpoints" / "step_3").rglob("*"), key=lambda path: path.stat().st_size)
    tensors.write_bytes(tensors.read_bytes()[:-9])
    (found,) = problems(checkpoint=str(other))
    assert tensors.name in found


def test_a_model_that_does_not_write_is_refused(run_dir, tmp_path):
    other = write_run(tmp_path / "run")
    for config_path in (other / "config.yaml", other / "checkpoints" / "step_3" / "config.yaml"):
        if config_path.is_file():
            config = load_config(config_path)
            save_config(replace(config, model=replace(config.model, architecture="bert")), config_path)
    found = problems(checkpoint=str(other))
    assert f"checkpoint={other} is a bert, which does not predict the next token" in found


def test_one_process_of_several_is_refused(run_dir):
    step = {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    (found,) = problems(step, checkpoint=str(run_dir))
    assert found == "2 processes from torchrun cannot share this model, which starts its own"


@pytest.mark.parametrize(
    ("words", "passed_on"),
    [
        ("checkpoint=a tp=2 --tasks x", "run --model mlm --model_args checkpoint=a,tp=2 --tasks x"),
        ("run checkpoint=a --tasks x", "run --model mlm --model_args checkpoint=a --tasks x"),
        (
            "--tasks x --model_args checkpoint=a tp=2",
            "run --model mlm --tasks x --model_args checkpoint=a tp=2",
        ),
        ("--model=hf --model_args pretrained=p", "run --model=hf --model_args pretrained=p"),
        ("ls tasks", "ls tasks"),
    ],
)
def test_leading_words_become_arguments_of_our_model_and_all_others_stay(words, passed_on):
    assert harness.for_lm_eval(words.split()) == passed_on.split()


def test_without_lm_eval_the_command_and_the_class_say_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert harness.main(["checkpoint=runs/first", "--tasks", "wikitext"]) == 2
    assert "lm_eval  is not installed  pip install 'mlm[harness]'" in capsys.readouterr().err
    with pytest.raises(ImportError, match="lm_eval is not installed: pip install"):
        from mlm.harness import MlmLM  # noqa: F401


def test_help_names_every_argument(capsys):
    assert harness.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"{name}=" in text for name in ARGUMENTS)


def test_the_configuration_for_workers_survives_its_file(run_dir, tmp_path):
    config = settle({"checkpoint": str(run_dir)}, {}, detect=lambda _: CPUS).config
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml", type(config)) == config
    assert json.dumps(config.tasks) == "[]"

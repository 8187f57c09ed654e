"""init_from with weights of another program: all that speaks against them is said before a worker starts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from mlm.checkpoint.origin import read_origin
from mlm.config.checks import check as check_config
from mlm.config.compose import compose
from mlm.config.locate import shipped_config_dir
from mlm.config.resolve import resolved
from mlm.config.schema import ModelConfig, TokenizerConfig, TrainConfig
from mlm.convert.formats import open_source
from mlm.convert.importing import import_weights
from mlm.data.prepared import PreparedData
from mlm.data.tokenizers import GPT2_FILES, GPT2_FOLDER, Gpt2Tokenizer, parse_tokenizer
from mlm.errors import ConfigError
from mlm.launch import finetuning, resume
from mlm.launch.resume_checks import check
from mlm.launch.training import SPEC
from tests.random_run import write_run

HIDDEN, LAYERS, SEQ, VOCAB = 8, 2, 16, 50257


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 as Hugging Face has it, made from the names and shapes of that format, with its tokenizer."""
    path = tmp_path_factory.mktemp("theirs")
    content = {"model_type": "gpt2", "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 2, "n_positions": SEQ}
    (path / "config.json").write_text(json.dumps({**content, "vocab_size": VOCAB, "resid_pdrop": 0.1}))
    shapes = {"wte.weight": (VOCAB, HIDDEN), "wpe.weight": (SEQ, HIDDEN)}
    for norm in ("ln_f", *(f"h.{i}.ln_{n}" for i in range(LAYERS) for n in (1, 2))):
        shapes |= {f"{norm}.weight": (HIDDEN,), f"{norm}.bias": (HIDDEN,)}
    linear = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    for name, (rows, columns) in linear.items():
        for i in range(LAYERS):
            shapes[f"h.{i}.{name}.weight"] = (rows * HIDDEN, columns * HIDDEN)
            shapes[f"h.{i}.{name}.bias"] = (columns * HIDDEN,)
    save_file({name: torch.randn(shape) for name, shape in shapes.items()}, path / "model.safetensors")
    for name in GPT2_FILES:
        shutil.copy(GPT2_FOLDER / name, path)
    return path


def composed(*words: str) -> TrainConfig:
    return compose([*words, "train.steps=10", "optim.warmup_steps=1", "dp=1"], [], SPEC)


def settled(run_dir: Path, config: TrainConfig) -> TrainConfig:
    return resolved(config, device="cpu", processes=config.tp, threads=1, precision="fp32", run_dir=run_dir)


def problems(run_dir: Path, *words: str) -> list[str]:
    config = composed(*words)
    return [str(each) for each in resume.problems(config, settled(run_dir, config), run_dir)]


def data_with(tokenizer: dict[str, object]) -> PreparedData:
    return PreparedData("text", False, (), tokenizer, SEQ, "abc", 5.5)


def test_model_and_tokenizer_come_from_the_checkpoint_unless_they_are_typed(folder, tmp_path):
    words = ("model=from_checkpoint", f"init_from={folder}")
    config = composed(*words, "model.dropout=0.3", "model.padded_vocab_size=50304", "tp=2")
    model = config.model
    assert (model.hidden_size, model.num_layers, model.seq_length) == (HIDDEN, LAYERS, SEQ)
    assert (model.dropout, model.attention_dropout, model.padded_vocab_size) == (0.3, 0.1, 50304)
    assert config.tokenizer == TokenizerConfig(kind="gpt2")
    assert resume.problems(config, settled(tmp_path / "run", config), tmp_path / "run") == []
    assert composed(*words, "tokenizer=byte").tokenizer.kind == "byte"


def test_from_checkpoint_reads_runs_as_well(folder, tmp_path):
    run_dir = import_weights(open_source(folder), tmp_path / "run", padded_vocab_size=50304).run_dir
    config = composed("model=from_checkpoint", f"init_from={run_dir}")
    assert config.model.padded_vocab_size == 50304
    assert config.tokenizer.kind == "gpt2"
    assert problems(tmp_path / "new", "model=from_checkpoint", f"init_from={run_dir}") == []


def test_the_option_has_every_key_of_its_section():
    shipped = shipped_config_dir()
    for section, schema in (("model", ModelConfig), ("tokenizer", TokenizerConfig)):
        keys = yaml.safe_load((shipped / section / "from_checkpoint.yaml").read_text())
        keys.pop("defaults", None)
        assert keys == {field.name: "from_checkpoint" for field in fields(schema)}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("model=from_checkpoint",), "stands for that of init_from, which is not set"),
        (("model=from_checkpoint", "init_from=/nowhere"), "init_from=/nowhere does not exist"),
        (("tokenizer=from_checkpoint", "init_from=NO_TOKENIZER"), "which holds no file of a tokenizer"),
    ],
)
def test_what_from_checkpoint_cannot_find_is_one_problem_beside_the_others(folder, tmp_path, words, sentence):
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns(*GPT2_FILES))
    with pytest.raises(ConfigError) as error:
        composed(*(word.replace("NO_TOKENIZER", str(bare)) for word in words), "seed=many")
    assert len(error.value.problems) == 2, error.value.problems
    assert sentence in str(error.value)
    assert "seed=many" in str(error.value)


def test_every_difference_of_shape_is_named_and_the_padding_is_free(folder, tmp_path):
    words = ["model=from_checkpoint", f"init_from={folder}", "model.padded_vocab_size=50304"]
    other = ["model.num_layers=3", "model.seq_length=32", "model.gelu=erf", "model.ffn_hidden_size=64"]
    found = problems(tmp_path / "run", *words, *other)
    for typed, there in zip(sorted(other), ("32", "tanh", "2", "16"), strict=True):
        assert any(each.startswith(f"{typed} is {there} in {folder}") for each in found), (typed, found)
    assert len(found) == len(other)
    assert problems(tmp_path / "run", *words) == []


def damaged(folder: Path, path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    shutil.copytree(folder, path)
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors")
    return path


@pytest.mark.parametrize("of", ["folder", "run"])
def test_a_task_for_a_bert_is_refused_where_the_weights_are_of_a_gpt2(folder, tmp_path, of):
    source = folder if of == "folder" else write_run(tmp_path / "run")
    words = ["finetune=race", f"init_from={source}", "finetune.train_path=/no", "finetune.dev_path=/none"]
    assert problems(tmp_path / "new", *words) == []
    config = composed(*words)
    assert "finetune=race" in [problem.where for problem in check_config(config)]
    wheres = [problem.where for problem in finetuning.problems(config)]
    assert wheres == ["finetune.train_path=/no", "finetune.dev_path=/none"]


def test_tensors_that_do_not_match_are_refused_before_anything_starts(folder, tmp_path):
    lost = damaged(folder, tmp_path / "lost", lambda w: (w.pop("ln_f.bias"), w.update(x=torch.ones(1))))
    found = problems(tmp_path / "run", "model=from_checkpoint", f"init_from={lost}")
    assert [sentence.split(", for")[0].split(" (")[0] for sentence in found] == [
        f"{lost} lacks ln_f.bias",
        f"{lost} holds x",
    ]


def test_the_tokenizer_has_to_be_the_one_beside_the_weights(folder, tmp_path):
    config = composed("model=from_checkpoint", f"init_from={folder}")
    said: list[str] = []
    beginning = resume.begin(config, tmp_path / "run", said.append, in_place=False)
    assert said == [f"the weights of {folder} (Hugging Face GPT-2), at step 0"]
    check(beginning, config, data_with(Gpt2Tokenizer().describe()), said.append)
    with pytest.raises(ConfigError, match="gives other ids than the gpt2 tokenizer that lies with"):
        check(beginning, config, data_with(parse_tokenizer("byte").describe()), said.append)
    (tmp_path / "run").mkdir()
    beginning.settle(tmp_path / "run", said.append)
    origin = read_origin(tmp_path / "run")
    assert origin is not None
    assert (origin.checkpoint, origin.weights) == (None, str(folder))


def test_training_does_not_go_on_from_weights_alone(folder, tmp_path):
    run_dir = import_weights(open_source(folder), tmp_path / "imported").run_dir
    words = ("model=from_checkpoint", f"init_from={run_dir}")
    for place, asked in ((tmp_path / "new", f"resume={run_dir}"), (run_dir, "resume=auto")):
        found = problems(place, *words, asked, f"run_dir={place}")
        assert any("holds weights only, and no moments of an optimizer" in each for each in found), found
        assert any(f"use init_from={run_dir}" in each for each in found)


def test_a_pickle_that_asks_for_code_is_read_only_where_it_is_allowed(folder, tmp_path):
    path = tmp_path / "pickled"
    shutil.copytree(folder, path, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, path / "pytorch_model.bin")
    assert problems(tmp_path / "run", "model=from_checkpoint", f"init_from={path}") == []
    torch.save({**weights, "x": Path("/")}, path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="allow_pickle=true"):
        composed("model=from_checkpoint", f"init_from={path}")

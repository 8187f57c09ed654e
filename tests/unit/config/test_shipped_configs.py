"""Every YAML file that is shipped: described, composable, right for its degree, right to the last number."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm.config.checks import check
from mlm.config.compose import compose, describe_groups
from mlm.config.locate import shipped_config_dir
from mlm.config.schema import Decay
from mlm.errors import ConfigError

GROUPS = {group.name: group for group in describe_groups()}

NATURAL_TP = {"gpt2_2b": 2, "gpt2_4b": 4, "gpt2_8b": 8, "gpt2_15m": 2}
"""Degrees of the paper's Table 1 and of the study on CPU; 1 for the others."""

SHAPES = {
    # layers, hidden, heads, sequence, real and padded vocabulary: paper, Tables 1 and 2; Radford et al. 2019.
    "gpt2_124m": (12, 768, 12, 1024, 50257, 50304),
    "gpt2_355m": (24, 1024, 16, 1024, 50257, 51200),
    "gpt2_774m": (36, 1280, 20, 1024, 50257, 50304),
    "gpt2_1558m": (48, 1600, 25, 1024, 50257, 50304),
    "gpt2_1b": (40, 1536, 16, 1024, 50257, 51200),
    "gpt2_2b": (54, 1920, 20, 1024, 50257, 51200),
    "gpt2_4b": (64, 2304, 24, 1024, 50257, 51200),
    "gpt2_8b": (72, 3072, 24, 1024, 50257, 51200),
    "gpt2_small_cpu": (12, 512, 8, 512, 50257, 51200),
    "gpt2_7m": (4, 384, 12, 128, 257, 264),
    "gpt2_15m": (6, 448, 14, 128, 257, 264),
    "gpt2_tiny": (2, 64, 4, 64, 257, 264),
    "gpt2_quickstart": (2, 192, 4, 128, 2048, 2048),
    "gpt2_shakespeare_char": (4, 128, 4, 64, 65, 66),
    # Paper, Table 4; Devlin et al. 2018.
    "bert_336m": (24, 1024, 16, 512, 30522, 30592),
    "bert_1b": (24, 2048, 32, 512, 30522, 30592),
    "bert_4b": (48, 2560, 40, 512, 30522, 30592),
    "bert_110m": (12, 768, 12, 512, 30522, 30592),
    "bert_small_cpu": (4, 256, 4, 128, 30522, 30592),
    "bert_tiny": (2, 128, 4, 128, 30522, 30592),
}


def test_the_groups_and_their_options_are_these() -> None:
    assert {name: [o.name for o in group.options] for name, group in GROUPS.items()} == {
        "tokenizer": [
            "byte",
            "char",
            "from_checkpoint",
            "gpt2",
            "hf",
            "sentencepiece",
            "wordpiece",
            "wordpiece_letters",
        ],
        "data": ["blend", "indexed", "shakespeare"],
        "objective": ["masked_lm", "next_token"],
        "optim": ["megatron_bert", "megatron_gpt2"],
        "precision": ["auto", "bf16", "fp16", "fp32"],
        "parallel": ["default"],
        "launch": ["auto", "dry_run", "join", "local", "slurm"],
        "logger": ["none", "tensorboard", "wandb"],
        "model": sorted([*SHAPES, "from_checkpoint"]),
        "finetune": ["mnli", "none", "qqp", "race", "squad_v1", "squad_v2"],
        "experiment": ["bert_megatron", "bert_novels", "quickstart", "shakespeare_char"],
    }


def test_every_default_is_an_option() -> None:
    for group in GROUPS.values():
        assert group.default is None or group.option(group.default) is not None


@pytest.mark.parametrize("path", sorted(shipped_config_dir().rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_opens_with_a_comment_that_says_what_it_is(path: Path) -> None:
    assert path.read_text().startswith("# ")


def test_every_option_has_a_description_that_fits_a_line() -> None:
    for group in GROUPS.values():
        for option in group.options:
            assert 10 < len(option.description) <= 110, (group.name, option)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_every_model_composes_passes_the_checks_and_has_its_published_shape(name: str) -> None:
    config = compose([f"model={name}", f"tp={NATURAL_TP.get(name, 1)}"])
    model = config.model
    assert check(config) == []
    shape = (model.num_layers, model.hidden_size, model.num_heads, model.seq_length)
    assert (*shape, model.vocab_size, model.padded_vocab_size) == SHAPES[name]
    assert model.name == name


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_tiny_s_vocabulary_splits_at_every_degree_up_to_eight(tp: int) -> None:
    config = compose(["model=gpt2_tiny", f"tp={tp}", "model.num_heads=8"])
    assert check(config) == []


def test_the_recipe_that_composes_alone_is_the_paper_s() -> None:
    config = compose(["model=gpt2_8b", "tp=8"])
    optim, train, model = config.optim, config.train, config.model
    assert (optim.lr, optim.min_lr, optim.warmup_steps, optim.weight_decay) == (1.5e-4, 1e-5, 3000, 0.01)
    assert (optim.clip_grad_norm, train.steps, train.global_batch_size) == (1.0, 300_000, 512)
    assert (model.dropout, model.attention_dropout, model.init_std) == (0.1, 0.1, 0.02)
    assert (config.tokenizer.kind, config.data.path, config.precision.name) == ("gpt2", None, "auto")


@pytest.mark.parametrize(
    ("overrides", "warmup"),
    [
        (["train.steps=300000"], 3000),
        (["train.steps=20000"], 200),
        (["train.steps=50"], 1),
        (["train.steps=1"], 0),
        (["train.steps=20", "optim.decay_steps=300000"], 3000),
        (["train.steps=50", "optim.warmup_steps=7"], 7),
    ],
)
def test_a_shorter_run_keeps_the_paper_s_share_of_warm_up(overrides: list[str], warmup: int) -> None:
    config = compose(overrides)
    assert check(config) == []
    assert config.optim.warmup_steps == warmup


def test_shakespeare_char_is_nanogpt_s_cpu_recipe() -> None:
    config = compose(["experiment=shakespeare_char"])
    optim, train, model = config.optim, config.train, config.model
    assert check(config) == []
    assert (model.bias, model.gelu.name, model.dropout, model.attention_dropout) == (False, "erf", 0.0, 0.0)
    assert (optim.lr, optim.min_lr, optim.warmup_steps, optim.decay_steps) == (1e-3, 1e-4, 100, None)
    assert (optim.beta1, optim.beta2, optim.weight_decay, optim.clip_grad_norm) == (0.9, 0.99, 0.1, 1.0)
    assert (train.steps, train.global_batch_size, train.micro_batch_size) == (2000, 12, 12)
    assert (config.tokenizer.kind, config.data.split, config.data.path) == ("char", [90.0, 10.0, 0.0], None)


@pytest.mark.parametrize("tp", [1, 2])
def test_every_experiment_runs_at_tp_1_and_2(tp: int) -> None:
    for experiment in GROUPS["experiment"].options:
        needs = ["data.path=/x"] if experiment.name.startswith("bert") else []
        assert check(compose([f"experiment={experiment.name}", f"tp={tp}", *needs])) == []


def test_the_papers_bert_is_section_4_3() -> None:
    config = compose(["experiment=bert_megatron", "model=bert_4b", "data.path=/x"])
    optim, objective = config.optim, config.objective
    assert (config.train.steps, config.train.global_batch_size) == (2_000_000, 1024)
    assert (optim.lr, optim.warmup_steps, optim.decay, optim.min_lr) == (1e-4, 10_000, Decay.linear, 0.0)
    assert (objective.name, objective.mask_rate, objective.max_ngram) == ("masked_lm", 0.15, 3)
    assert (config.model.num_layers, config.tokenizer.kind) == (48, "wordpiece")


@pytest.mark.parametrize("group", ["tokenizer", "precision", "launch", "logger", "data"])
def test_every_other_option_composes(group: str) -> None:
    # from_checkpoint stands for what is in a checkpoint: tests/unit/launch/test_initial_weights.py.
    for option in (o for o in GROUPS[group].options if o.name != "from_checkpoint"):
        needs = {"indexed": ["data.path=/x"], "blend": ["data.blend=[{weight: 1, path: /x}]"]}
        assert check(compose([f"{group}={option.name}", *needs.get(option.name, [])])) == []


def test_the_launch_modes_and_kinds_are_those_of_their_files() -> None:
    assert [compose([f"launch={m}"]).launch.mode for m in ("auto", "dry_run")] == ["auto", "dry_run"]
    assert compose(["logger=wandb"]).logger.kind == "wandb"
    assert compose(["precision=bf16"]).precision.name == "bf16"
    assert compose(["data=indexed", "data.path=/x"]).data.split == [969.0, 30.0, 1.0]


def test_a_wheel_s_configs_come_before_a_source_tree_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "mlm"
    monkeypatch.setattr("mlm.config.locate._PACKAGE", package)
    with pytest.raises(ConfigError, match="install mlm again"):
        shipped_config_dir()
    for directory in (package.parent / "configs", package / "configs"):
        directory.mkdir(parents=True)
        (directory / "train.yaml").write_text("defaults: []\n")
        assert shipped_config_dir() == directory

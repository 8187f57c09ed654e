"""What finetune=TASK makes of a configuration, and what it refuses, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlm.config.compose import compose
from mlm.config.schema import TrainConfig
from mlm.errors import ConfigError
from mlm.launch import finetuning
from mlm.launch.training import SPEC, TRAIN
from tests.foreign import made, saved, words


def questions(path: Path, count: int) -> Path:
    record: dict[str, Any] = {
        "article": "w1 w2 w3 w4 w5",
        "questions": ["w6 _ ?"] * count,
        "options": [["w1", "w2", "w3", "w7"]] * count,
        "answers": ["B"] * count,
    }
    path.write_text(json.dumps(record) + "\n")
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    saved(made("BertModel"), folder)
    words(folder, 90)
    return folder


@pytest.fixture
def files(tmp_path: Path, weights: Path) -> list[str]:
    train, dev = questions(tmp_path / "train.jsonl", 70), questions(tmp_path / "dev.jsonl", 5)
    return [
        "finetune=race",
        f"init_from={weights}",
        f"finetune.train_path={train}",
        f"finetune.dev_path={dev}",
    ]


def composed(*overrides: str) -> TrainConfig:
    return compose(overrides, (), SPEC)


def test_the_recipe_and_the_files_fill_what_is_not_typed(files: list[str]):
    config = composed(*files)
    assert (config.model.hidden_size, config.tokenizer.kind) == (48, "wordpiece")  # those of init_from
    assert config.objective.name == "race"
    # Table 6, 336M: batch 32, lr 2e-5, 3 epochs: 210 samples, of which the last step takes some anew.
    assert (config.train.global_batch_size, config.optim.lr, config.train.steps) == (32, 2e-5, 7)
    assert config.train.eval_interval == 3  # an epoch of 70 samples ends in the third step
    assert config.optim.warmup_steps == 1
    assert config.finetune.recipe == "Table 6, 336M: batch 32, lr 2e-05, 3 epochs"
    assert SPEC.check(config) == []
    assert TRAIN.file_problems(config) == []


def test_what_is_typed_stays_and_is_said_beside_the_recipe(files: list[str]):
    config = composed(*files, "train.global_batch_size=10", "optim.lr=1e-3", "finetune.epochs=2")
    assert (config.train.global_batch_size, config.optim.lr, config.train.steps) == (10, 1e-3, 14)
    assert config.finetune.recipe is not None
    assert config.finetune.recipe.endswith("; here batch is 10, lr is 0.001, epochs is 2")
    fixed = composed(*files, "train.steps=5", "train.eval_interval=2", "optim.warmup_steps=3")
    assert (fixed.train.steps, fixed.train.eval_interval, fixed.optim.warmup_steps) == (5, 2, 3)


@pytest.mark.parametrize(
    ("task", "hidden", "layers", "expected"),
    [
        ("race", 1024, 24, (32, 2e-5, 3)),
        ("race", 2048, 24, (16, 1e-5, 3)),
        ("race", 2560, 48, (32, 2e-5, 3)),
        ("mnli", 2560, 48, (128, 1e-5, 10)),
        ("qqp", 1024, 24, (128, 5e-5, 12)),
        ("qqp", 2048, 24, (128, 3e-5, 12)),
        ("qqp", 2560, 48, (256, 4e-5, 12)),
        ("squad_v1", 1024, 24, (64, 3e-5, 2)),
        ("squad_v1", 2560, 48, (48, 1e-5, 2)),
        ("squad_v2", 1024, 24, (48, 3e-5, 2)),
        ("squad_v2", 2048, 24, (64, 3e-5, 2)),
    ],
)
def test_recipes_are_those_of_table_6(
    weights: Path, task: str, hidden: int, layers: int, expected: tuple[int, float, float]
):
    shape = [f"model.hidden_size={hidden}", f"model.num_layers={layers}", "model.vocab_size=30522"]
    config = composed(f"finetune={task}", f"init_from={weights}", *shape, "model.ffn_hidden_size=null")
    assert (config.train.global_batch_size, config.optim.lr, config.finetune.epochs) == expected


def test_missing_files_and_weights_are_all_named(weights: Path):
    found = finetuning.problems(composed("finetune=race", f"init_from={weights}", "train.eval_samples=5"))
    assert [problem.where for problem in found] == [
        "finetune.train_path",
        "finetune.dev_path",
        "train.eval_samples=5",
    ]
    with pytest.raises(ConfigError, match="add init_from=PATH"):
        composed("finetune=race")


def test_damaged_records_of_both_files_are_refused_together(tmp_path: Path, weights: Path):
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    train.write_text("{\n")
    dev.write_text("[]\n")
    config = composed(
        "finetune=race", f"init_from={weights}", f"finetune.train_path={train}", f"finetune.dev_path={dev}"
    )
    where = [problem.where for problem in finetuning.problems(config)]
    assert where == [f"{train}, line 1", f"{dev}, line 1"]


def test_a_sequence_longer_than_the_models_positions_is_refused(files: list[str]):
    (found,) = finetuning.problems(composed(*files, "finetune.seq_length=25"))
    assert str(found).startswith("finetune.seq_length=25 is more than the model's 24 positions")

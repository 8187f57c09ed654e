"""Overrides that Hydra would let through, or explain badly, are refused with what to type instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm.config.command import EVAL
from mlm.config.compose import compose, nearest
from mlm.config.schema import BlendPart
from mlm.errors import ConfigError, Problem


def only(*overrides: str) -> Problem:
    with pytest.raises(ConfigError) as caught:
        compose(list(overrides))
    assert len(caught.value.problems) == 1, [str(p) for p in caught.value.problems]
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("train.learning_rte=1", "train has steps"),
        ("+train.stps=1", "train.steps=1"),
        ("++train.stps=1", "train.steps=1"),
        ("model.hiden_size=64", "model.hidden_size=64"),
        ("num_heads=3", "model.num_heads=3"),
        ("lr=1e-3", "optim.lr=1e-3"),
        ("batch_size=4", "train.global_batch_size=4"),
        ("modle=gpt2_tiny", "model=gpt2_tiny"),
        ("optim/lr=1", "optim.lr=1"),
        ("parallel.tp=2", "tp=2"),
        ("xyzzy=1", "--help"),
        ("model=gpt2_tinny", "model=gpt2_tiny"),
        ("precision=fp64", "fp32"),
        (
            "tokenizer=zzz",
            "byte, char, from_checkpoint, gpt2, hf, sentencepiece, wordpiece, wordpiece_letters",
        ),
        ("+tp=2", "drop the +: tp=2"),
        ("++optim.lr=1", "drop the ++: optim.lr=1"),
        ("+experiment=quickstart", "drop the +: experiment=quickstart"),
        ("~optim.clip_grad_norm", "optim.clip_grad_norm=null"),
        ("~model", "another option of model"),
        ("hydra.output_subdir=x", "leave it out"),
        ("+hydra.run.dir=x", "leave it out"),
        ("hydra/launcher=joblib", "leave it out"),
        ("model=[gpt2_tiny,gpt2_8b]", "gpt2_8b"),
        ("model=gpt2_tiny,gpt2_8b", "gpt2_8b"),
        ("model={num_layers:2}", "gpt2_8b"),
        ("model=null", "gpt2_8b"),
        ("model=", "model=VALUE"),
        ("train={steps:3}", "train.steps"),
        ("optim.lr=1e-3,1e-4", "optim.lr=1e-3"),
        ("tp=range(1,5)", "tp="),
        ("data.split=90,10,0", "data.split=[90,10,0]"),
        ("data.cache_dir=", "data.cache_dir=null"),
        ("tp=", "tp=VALUE"),
        ("tp", "tp=VALUE"),
        ("steps", "key=value"),
        ("=3", "--help"),
        ("train.steps=(", "quote"),
        ("data.split=[90,10", "quote"),
    ],
)
def test_an_override_that_cannot_be_applied_is_refused_with_a_remedy(override: str, remedy: str) -> None:
    problem = only(override)
    assert override.partition("=")[0] in problem.where
    assert remedy in problem.remedy, str(problem)


@pytest.mark.parametrize("pair", [("tp=2", "tp=4"), ("model=gpt2_tiny", "model=gpt2_8b"), ("tp=2", "tp=2")])
def test_a_key_given_twice_is_refused(pair: tuple[str, str]) -> None:
    assert "a second time" in only(*pair).wrong


def test_nearest_prefers_the_one_obvious_name_and_offers_nothing_far_away() -> None:
    assert nearest("gpt2_tinny", ["gpt2_tiny", "gpt2_8b", "gpt2_small_cpu"]) == ["gpt2_tiny"]
    assert nearest("zzz", ["gpt2_tiny", "gpt2_8b"]) == []


BLEND = "data.blend=[{weight: 0.3, path: a/b}, {weight: 7, path: '/c d'}]"


def test_a_list_of_mappings_is_typed_as_one_quoted_word(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    blend = compose(["data=blend", BLEND]).data.blend
    assert blend == [
        BlendPart(weight=0.3, path=str(tmp_path / "a/b")),
        BlendPart(weight=7.0, path="/c d"),
    ]


def test_a_list_of_mappings_is_read_from_a_file(tmp_path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text(
        "name: mine\npath: null\nsplit: [1]\n"
        "blend:\n  - {weight: 1e-3, path: /a}\n  - weight: 2\n    path: /b\n"
    )
    blend = compose(["data=mine"], [tmp_path]).data.blend
    assert blend == [BlendPart(weight=0.001, path="/a"), BlendPart(weight=2.0, path="/b")]


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [
        ("[{weight: x, path: a}]", "has an element whose weight=x is not a number"),
        ("[{weight: null, path: a}]", "has an element whose weight=null may not be null"),
        ("[{weight: 1, path: 7}]", "has an element whose path=7 is not text"),
        ("[{weigth: 1, path: a}]", "has an element with the unknown entry weigth"),
        ("[{weight: 1}]", "has an element with no path"),
        ("[a, b]", "has the element a, which is no mapping"),
        ("{weight: 1, path: a}", "is not a list"),
        ("0.3 a 0.7 b", "is not a list"),
        ("[{weight: 1, path: ~/b}]", "cannot be read"),
    ],
)
def test_a_list_of_mappings_that_is_not_right_is_refused_once_with_its_shape(typed: str, wrong: str) -> None:
    problem = only("data=blend", f"data.blend={typed}")
    assert problem.wrong.startswith(wrong)
    assert "weight" in problem.remedy.lower()
    assert "path" in problem.remedy.lower()


def test_paths_of_a_sweep_are_text_as_they_stand_in_a_list_too() -> None:
    listed = "ensemble=[runs/a/seed=2/r1, runs/a/seed=3/r1]"
    found = compose(["checkpoint=runs/a/seed=1/r1", "tasks=[race]", listed], [], EVAL)
    assert found.ensemble == [str(Path("runs/a").absolute() / f"seed={n}" / "r1") for n in (2, 3)]
    with pytest.raises(ConfigError, match=r"quote each entry as well: \"ensemble=\['\.\.\.', '\.\.\.'\]\""):
        compose(["ensemble=[a=b,[c=d]]"], [], EVAL)

"""What may change when a run goes on: each key has a meaning, and each change is shown or refused."""

from __future__ import annotations

from typing import Any

import pytest

from mlm.config.compose import compose
from mlm.config.fields import schema_fields
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.launch.changes import NOT_COMPARED, RULES, Effect, changes, refusals, rule_of, table


def config(*words: str) -> TrainConfig:
    degree = [] if any(word.startswith("dp=") for word in words) else ["dp=1"]
    composed = compose(["model=gpt2_tiny", *degree, "optim.warmup_steps=10", *words])
    processes = composed.tp * composed.pp * (composed.dp or 1)
    return resolved(composed, device="cpu", processes=processes, threads=1, precision="fp32", run_dir="r")


def effects(*words: str, then: tuple[str, ...] = ()) -> dict[str, Effect]:
    return {c.key: c.rule.effect for c in changes(config(*then), config(*words))}


def test_every_key_has_a_meaning_or_is_not_compared_and_no_rule_is_for_a_key_that_is_not():
    keys = schema_fields()
    left_out = {k for k in keys if k in NOT_COMPARED or k.partition(".")[0] in NOT_COMPARED}
    assert {key for key in keys if rule_of(key) is None} == left_out
    assert set(RULES) <= set(keys)


@pytest.mark.parametrize(
    ("word", "then", "effect"),
    [
        ("tp=2", "model.dropout=0", Effect.ALLOWED),  # attention's dropout is left
        ("train.micro_batch_size=4", "train.log_interval=10", Effect.ALLOWED),
        ("train.global_batch_size=1024", "", Effect.ALLOWED),
        ("optim.lr=1e-3", "", Effect.ALLOWED),
        ("optim.weight_decay=0.5", "", Effect.ALLOWED),
        ("model.dropout=0.3", "", Effect.ALLOWED),
        ("train.log_interval=3", "", Effect.EXACT),
        ("checkpoint.interval=3", "", Effect.EXACT),
        ("launch.threads=7", "", Effect.ROUNDING),
        ("model.num_layers=3", "", Effect.REFUSED),
        ("model.padded_vocab_size=512", "", Effect.REFUSED),
        ("model.gelu=erf", "", Effect.REFUSED),
        ("seed=1", "", Effect.REFUSED),
        ("init_from=x", "", Effect.REFUSED),
    ],
)
def test_a_changed_key_has_this_effect(word, then, effect):
    before = (then,) if then else ()
    key = word.partition("=")[0]
    words = [*before, word] if not then.startswith(key) else [word]
    if key == "launch.threads":
        composed = compose(["model=gpt2_tiny", "dp=1", "optim.warmup_steps=10"])
        now = resolved(composed, device="cpu", processes=1, threads=7, precision="fp32", run_dir="r")
        found = {c.key: c.rule.effect for c in changes(config(), now)}
    else:
        found = effects(*words, then=before)
    assert found == {key: effect}


def test_without_dropout_another_layout_is_exact_to_rounding():
    off = ("model.dropout=0", "model.attention_dropout=0")
    assert effects("tp=2", "dp=2", "train.micro_batch_size=4", *off, then=off) == dict.fromkeys(
        ["train.micro_batch_size", "tp", "dp"], Effect.ROUNDING
    )


def test_where_the_run_writes_and_what_it_was_to_resume_are_no_changes():
    assert effects("run_dir=elsewhere", "resume=auto", "data.path=x", "tokenizer=byte") == {}


def test_more_steps_change_the_schedule_that_ends_with_them_unless_its_end_is_given():
    assert list(effects("train.steps=600000")) == ["optim.decay_steps", "train.steps"]
    end = "optim.decay_steps=300000"
    assert list(effects("train.steps=600000", end, then=(end,))) == ["train.steps"]


def test_refusals_name_both_values_and_the_one_to_use():
    found = changes(config(), config("model.num_layers=3", "seed=9", "optim.lr=1e-3"))
    problems = [str(problem) for problem in refusals(found, "step_7")]
    assert problems == [
        "model.num_layers=3 was 2 for step_7, and its weights are made for that: use model.num_layers=2",
        "seed=9 was 1234 for step_7, and the order of the samples follows from it: use seed=1234",
    ]


def test_the_table_has_then_and_now_in_columns_and_leaves_refusals_out():
    found = changes(config(), config("seed=9", "optim.lr=1e-3", "train.steps=300001"))
    lines = list(table(found))
    assert [line.split()[:3] for line in lines] == [
        ["then", "now"],
        ["optim.lr", "0.00015", "0.001"],
        ["optim.decay_steps", "300000", "300001"],
        ["train.steps", "300000", "300001"],
    ]
    assert lines[-1].endswith("allowed: training ends there")
    assert (
        len({line.index(word) for line, word in zip(lines[1:], ("0.00015", "300000", "300000"), strict=True)})
        == 1
    )
    assert list(table([])) == []


def test_a_null_is_shown_as_one():
    found = changes(config("optim.clip_grad_norm=null"), config())
    shown: Any = [(c.key, c.then, c.now) for c in found]
    assert shown == [("optim.clip_grad_norm", "null", "1")]

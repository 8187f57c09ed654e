"""check(): impossible numbers and combinations, each with a remedy that really is one."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.config.checks import NAMES, check, check_evaluation, divisors
from mlm.config.command import EVAL
from mlm.config.compose import compose
from mlm.config.fields import assemble, flatten, schema_fields
from mlm.config.ranges import RANGES
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.errors import ConfigError, Problem

TINY = compose(["model=gpt2_tiny"])
NUMERIC = [key for key, field in schema_fields().items() if field.is_number]


def problems(**changes: object) -> list[Problem]:
    return check(with_values({key.replace("__", "."): value for key, value in changes.items()}))


def with_values(changes: dict[str, object]) -> TrainConfig:
    return assemble({**flatten(TINY), **changes})


def typed(remedy: str) -> list[str]:
    """The key=value remedies of a sentence."""
    return re.findall(r"[a-z_.0-9]+=[0-9.e+-]+", remedy)


def test_every_numeric_field_of_the_schema_has_a_range_and_every_range_a_field() -> None:
    assert set(RANGES) == set(NUMERIC)


def test_every_field_that_takes_one_of_a_few_names_is_a_field() -> None:
    assert set(NAMES) <= set(schema_fields())


IMPOSSIBLE = {int: [-1, 2**64, 10**400], float: [-1.0, math.nan, math.inf, -math.inf]}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key in NUMERIC for value in IMPOSSIBLE[schema_fields()[key].kind]]
)
def test_negative_endless_and_undefined_numbers_are_refused_everywhere(key: str, value: float) -> None:
    found = check(with_values({key: value}))
    assert [p.where.partition("=")[0] for p in found] == [key], [str(p) for p in found]
    assert "use " in found[0].remedy


@pytest.mark.parametrize(
    "key",
    ["tp", "pp", "dp", "train.steps", "optim.lr", "optim.eps", "model.num_heads", "train.micro_batch_size"],
)
def test_zero_is_refused_where_it_makes_no_sense(key: str) -> None:
    assert [p.where for p in check(with_values({key: schema_fields()[key].kind(0)}))] == [f"{key}=0"]


@pytest.mark.parametrize("key", ["model.dropout", "model.attention_dropout", "optim.beta1", "optim.beta2"])
def test_probabilities_and_betas_end_below_one(key: str) -> None:
    assert check(with_values({key: 0.0})) == []
    assert [p.wrong for p in check(with_values({key: 1.0}))] == ["is not below 1"]


@pytest.mark.parametrize("key", NAMES)
def test_an_unknown_name_is_answered_with_the_nearest(key: str) -> None:
    name = NAMES[key][-1]
    (problem,) = check(with_values({key: f"{name}x"}))
    assert problem.where == f"{key}={name}x"
    assert f"{key}={name}" in problem.remedy


def test_heads_that_tp_does_not_divide_are_answered_with_every_tp_that_does() -> None:
    (problem,) = problems(model__num_heads=15, model__hidden_size=60, tp=4, model__padded_vocab_size=264)
    assert str(problem) == "model.num_heads=15 is not a multiple of tp=4: use tp=1, 3, 5 or 15"


def test_gpt2_xl_has_25_heads() -> None:
    (problem,) = check(replace(compose(["model=gpt2_1558m"]), tp=2))
    assert problem.remedy == "use tp=1, 5 or 25"


def test_hidden_that_heads_do_not_divide_is_answered_with_sizes_and_heads_that_fit() -> None:
    (problem,) = problems(model__hidden_size=66)
    assert problem.where == "model.hidden_size=66"
    offered = typed(problem.remedy)
    assert offered == [
        "model.hidden_size=64",
        "model.hidden_size=68",
        "model.num_heads=3",
        "model.num_heads=6",
    ]


def test_an_mlp_that_tp_does_not_divide_is_refused() -> None:
    (problem,) = problems(model__ffn_hidden_size=255, tp=2)
    assert problem.where == "model.ffn_hidden_size=255"
    assert "model.ffn_hidden_size=256" in problem.remedy


@pytest.mark.parametrize(
    ("vocab", "padded", "tp", "remedy"),
    [(257, 258, 4, 260), (257, None, 2, 258), (257, 256, 2, 258), (3, 128, 3, 129)],
)
def test_a_vocabulary_that_does_not_split_is_answered_with_the_next_padded_size(
    vocab: int, padded: int | None, tp: int, remedy: int
) -> None:
    changes = {"model.num_heads": 12, "model.hidden_size": 48, "model.vocab_size": vocab, "tp": tp}
    (problem,) = check(with_values({**changes, "model.padded_vocab_size": padded}))
    assert problem.remedy == f"use model.padded_vocab_size={remedy}"
    assert check(with_values({**changes, "model.padded_vocab_size": remedy})) == []


@pytest.mark.parametrize(
    ("size", "micro", "dp"), [(10, 4, None), (10, 4, 2), (12, 4, 2), (3, 4, 1), (6, 1, 4)]
)
def test_a_batch_that_does_not_divide_is_answered_with_sizes_that_do(
    size: int, micro: int, dp: int | None
) -> None:
    batch = {"train.global_batch_size": size, "train.micro_batch_size": micro, "dp": dp}
    (problem,) = check(with_values(batch))
    offered = typed(problem.remedy)
    assert offered
    for remedy in offered:
        key, _, value = remedy.partition("=")
        assert check(with_values({**batch, key: int(value)})) == []


@pytest.mark.parametrize("steps", [1, 2, 10, 1000])
def test_a_warm_up_longer_than_the_schedule_is_refused_and_each_remedy_works(steps: int) -> None:
    (problem,) = problems(train__steps=steps)
    assert problem.where == "optim.warmup_steps=3000"
    offered = typed(problem.remedy)
    assert len(offered) == 2
    for remedy in offered:
        key, _, value = remedy.partition("=")
        assert problems(train__steps=steps, **{key.replace(".", "__"): int(value)}) == []


def test_the_end_of_the_cosine_is_decay_steps_when_it_is_given() -> None:
    assert problems(train__steps=20, optim__decay_steps=300_000) == []
    (problem,) = problems(optim__decay_steps=2000)
    assert "optim.decay_steps=2000" in problem.wrong


def test_min_lr_above_lr_is_refused() -> None:
    (problem,) = problems(optim__min_lr=1e-3)
    assert problem.where == "optim.min_lr=0.001"


def test_auto_needs_the_directory_that_it_continues() -> None:
    (problem,) = problems(resume="auto")
    assert (problem.where, problem.remedy) == ("resume=auto", "add run_dir=DIR, or use resume=PATH")
    assert problems(resume="auto", run_dir="/r") == []


def test_weights_come_from_one_place() -> None:
    (problem,) = problems(resume="/a", init_from="/b")
    assert problem.where == "init_from=/b"
    assert problems(resume="auto", run_dir="/r", init_from="/b") == []


def test_a_model_of_masked_tokens_is_not_asked_for_answers() -> None:
    assert check(compose(["model=bert_tiny"])) == []
    (problem,) = check(compose(["model=bert_tiny", "eval.tasks=[lambada,wikitext103]"]))
    assert problem.where == "eval.tasks=[lambada,wikitext103]"
    (problem,) = check(compose(["model=bert_tiny", "objective=next_token"]))
    assert problem.remedy == "use objective=masked_lm, or another model"


def test_an_evaluation_has_nothing_to_be_started_again_from() -> None:
    evaluation = compose(["launch.max_restarts=2"], [], EVAL)
    (problem,) = check_evaluation(evaluation)
    assert problem.where == "launch.max_restarts=2"


def test_pipelines_are_refused_until_they_are_built() -> None:
    (problem,) = problems(pp=2)
    assert problem.remedy == "use pp=1"


def test_all_problems_are_found_at_once() -> None:
    found = problems(
        tp=3, train__steps=5, model__dropout=2.0, train__global_batch_size=7, launch__device="tpu"
    )
    assert {p.where.partition("=")[0] for p in found} == {
        "model.dropout",
        "launch.device",
        "model.num_heads",
        "train.global_batch_size",
        "optim.warmup_steps",
    }


@given(st.integers(1, 5000))
def test_divisors_are_exactly_the_numbers_that_divide(number: int) -> None:
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 600),
    st.integers(1, 16),
    st.integers(1, 50),
    st.integers(1, 9),
)
def test_what_check_lets_through_divides(
    heads: int, head_dim: int, padded: int, tp: int, batch: int, micro: int
) -> None:
    config = with_values(
        {
            "model.num_heads": heads,
            "model.hidden_size": heads * head_dim,
            "model.vocab_size": 5,
            "model.padded_vocab_size": padded,
            "tp": tp,
            "train.global_batch_size": batch,
            "train.micro_batch_size": micro,
        }
    )
    divides = heads % tp == 0 and padded % tp == 0 and padded >= 5 and batch % micro == 0
    assert (check(config) == []) == divides


def test_resolved_leaves_nothing_to_be_decided_by_a_worker() -> None:
    config = compose(
        ["tokenizer=sentencepiece", "tp=2", "model.padded_vocab_size=null", "train.steps=400000"]
    )
    done = resolved(config, device="cpu", processes=8, threads=3, precision="fp32", run_dir="/tmp/r")
    assert (done.dp, done.launch.device, done.launch.threads, done.precision.name) == (4, "cpu", 3, "fp32")
    assert (done.optim.decay_steps, done.model.ffn_hidden_size, done.model.padded_vocab_size) == (
        400_000,
        256,
        257,
    )
    assert (done.tokenizer.vocab_size, done.run_dir) == (257, "/tmp/r")
    assert config.dp is None


@pytest.mark.parametrize(("processes", "dp"), [(3, None), (4, 4), (1, None), (0, None)])
def test_processes_that_cannot_be_laid_out_are_refused(processes: int, dp: int | None) -> None:
    config = with_values({"tp": 2, "dp": dp})
    with pytest.raises(ConfigError):
        resolved(config, device="cpu", processes=processes, threads=1, precision="fp32", run_dir="r")

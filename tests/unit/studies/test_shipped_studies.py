"""Every study that is shipped: the paper's models and degrees, level work, a plan that writes nothing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from mlm.cli.train import main
from mlm.config.fields import flatten
from mlm.config.schema import TrainConfig
from mlm.data.tokenizers.configured import build
from mlm.launch.machine import detect_machine
from mlm.launch.sweep.check import published_key
from mlm.launch.sweep.start import Sweep, composed
from mlm.launch.training import TRAIN
from mlm.plan.flops import model_flops_per_step
from mlm.plan.parameters import count_parameters
from mlm.plan.published import PUBLISHED
from mlm.studies.definition import find_studies

NAMES = [option.name for option in find_studies()]
LOSSES = ["layernorm_placement"]
TIMED = [name for name in NAMES if name not in LOSSES]


def study(name: str, *overrides: str) -> Sweep:
    sweep = composed(TRAIN, [f"study={name}", *overrides], [], detect_machine({}), {})
    assert not sweep.problems, list(map(str, sweep.problems))
    return sweep


def layout(config: TrainConfig) -> tuple[Any, ...]:
    model, dp = config.model, config.dp
    shape = (model.hidden_size, model.num_heads, model.num_layers)
    return (*shape, config.tp, dp, config.train.global_batch_size)


def flops_per_process(config: TrainConfig) -> float:
    assert config.dp is not None
    batch = config.train.global_batch_size
    return model_flops_per_step(config.model, batch) / (config.tp * config.dp)


def test_the_studies_are_these():
    assert NAMES == [
        "attention_heads",
        "layernorm_placement",
        "strong_scaling",
        "strong_scaling_cpu",
        "weak_scaling_cpu",
        "weak_scaling_tp",
        "weak_scaling_tp_dp",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_shows_every_point_and_writes_nothing(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["-m", f"study={name}", "launch=dry_run"]) == 0
    shown = capsys.readouterr().out
    sweep = study(name)
    for point in sweep.points:
        assert point.label in shown
        assert f"{count_parameters(point.config.model, point.config.tp).total:,}" in shown
        assert f"run_dir=runs/{name}/{point.label}/r1" in shown
    assert shown.count("\n mlm-train ") == len(sweep.points)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", TIMED)
def test_a_study_times_training_alone_and_enough_of_it(name):
    sweep = study(name)
    assert sweep.definition is not None
    for point in sweep.points:
        train = point.config.train
        assert (train.eval_interval, train.final_eval, train.save, train.sample_tokens) == (
            0,
            False,
            False,
            0,
        )
        assert point.config.profile
        profiled = 3
        windows = (train.steps - profiled - sweep.definition.warmup_steps) // train.log_interval
        assert windows >= 6
        assert sweep.definition.warmup_steps % train.log_interval == 0, "a window would straddle the warm-up"
    assert sweep.definition.repeats == 3
    assert sweep.definition.baseline is not None


TABLE_1 = [(1536, 16, 40, 1), (1920, 20, 54, 2), (2304, 24, 64, 4), (3072, 32, 72, 8)]
"""Hidden size, heads, layers and tensor-parallel degree of the paper's scaling study."""


def test_weak_scaling_has_the_rows_of_table_1_at_batch_8():
    found = [layout(point.config) for point in study("weak_scaling_tp").points]
    assert found == [(*row, 1, 8) for row in TABLE_1]


def test_with_data_parallelism_they_have_64_replicas_batch_512_and_one_device_as_the_baseline():
    sweep = study("weak_scaling_tp_dp")
    baseline, *points = sweep.points
    assert baseline.swept.is_baseline
    assert layout(baseline.config) == (*TABLE_1[0], 1, 8)
    assert [layout(point.config) for point in points] == [(*row, 64, 512) for row in TABLE_1]
    assert [point.launch.processes for point in points] == [64, 128, 256, 512]


def test_strong_scaling_is_table_8_s_one_model_at_one_batch():
    found = [layout(point.config) for point in study("strong_scaling").points]
    assert found == [(1536, 16, 40, tp, 1, 8) for tp in (1, 2, 4, 8)]


def test_attention_heads_is_table_7_s_beside_the_1_2_billion_model():
    baseline, *points = study("attention_heads").points
    assert layout(baseline.config) == (*TABLE_1[0], 1, 8)
    assert [layout(point.config) for point in points] == [(3072, n, 72, 8, 1, 8) for n in (16, 24, 32)]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("weak_scaling_tp", [1, 2, 4, 8]),
        ("weak_scaling_tp_dp", [None, 64, 128, 256, 512]),
        ("strong_scaling", [1, 2, 4, 8]),
        ("attention_heads", [None, 16, 24, 32]),
    ],
)
def test_every_point_has_its_place_in_the_published_figure(name, keys):
    sweep = study(name)
    assert [published_key(sweep.definition, point) for point in sweep.points] == keys
    assert sweep.definition is not None
    assert sorted(PUBLISHED[str(sweep.definition.published)].values) == [key for key in keys if key]


def test_work_per_process_is_level_in_weak_scaling_on_cpu():
    points = study("weak_scaling_cpu").points
    assert [(p.config.tp, p.config.dp, p.swept.series) for p in points] == [
        (1, 1, None),
        (2, 1, "tensor parallel"),
        (1, 2, "data parallel"),
    ]
    work = [flops_per_process(point.config) for point in points]
    for flops in work:
        assert flops == pytest.approx(work[0], rel=0.05), work


def test_strong_scaling_on_cpu_has_one_model_one_batch_and_one_micro_batch():
    points = study("strong_scaling_cpu").points
    assert len({repr((p.config.model, p.config.train)) for p in points}) == 1
    assert [(p.config.tp, p.config.dp) for p in points] == [(1, 1), (2, 1), (1, 2)]


@pytest.mark.parametrize("name", ["weak_scaling_cpu", "strong_scaling_cpu"])
def test_on_cpu_every_process_has_one_thread_the_baseline_s_too(name):
    for point in study(name).points:
        assert (point.config.launch.threads, point.config.launch.device) == (1, "cpu")
        assert point.config.precision.name == "fp32"


def test_the_placement_of_layernorms_is_compared_at_every_depth_and_rate_and_nothing_else_differs():
    sweep = study("layernorm_placement")
    definition = sweep.definition
    assert definition is not None
    assert (definition.compare, definition.curves) == ("loss", "model.layernorm")
    values = [flatten(point.config) for point in sweep.points]
    varied = ("model.num_layers", "optim.lr", "model.layernorm")
    places = [tuple(getattr(v[key], "name", v[key]) for key in varied) for v in values]
    depths, rates = ({place[n] for place in places} for n in (0, 1))
    assert sorted(places) == sorted(itertools.product(depths, rates, ("pre", "post")))
    assert len(depths) >= 3
    assert len(rates) >= 2
    same = [{key: value for key, value in v.items() if key not in varied} for v in values]
    assert all(each == same[0] for each in same)
    config = sweep.points[0].config
    assert (config.objective.name, config.model.architecture) == ("masked_lm", "bert")
    assert config.train.final_eval
    assert config.train.max_bad_steps > 0
    # 0.02, the paper's, at the width of its smallest BERT, in proportion to the root of the width.
    assert config.model.init_std == pytest.approx(0.02 * (1024 / config.model.hidden_size) ** 0.5)


def test_its_letters_are_one_token_each_and_their_number_is_the_model_s():
    config = study("layernorm_placement").points[0].config
    tokenizer = build(config.tokenizer, "", Path())
    assert tokenizer.vocab_size == config.model.vocab_size
    words = [tokenizer.piece(int(token)) for token in tokenizer.encode("To be, or not 2?")]
    assert words == ["t", "##o", "b", "##e", ",", "o", "##r", "n", "##o", "##t", "2", "?"]
    assert {"cls", "sep", "mask", "pad"} <= set(tokenizer.special)

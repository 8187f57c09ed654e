"""Masked tokens and sentence order: the same training and the same figures at every layout."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.data_parallel import replicate
from mlm.parallel.rng import RngStreams
from mlm.train.metrics import Window
from mlm.train.step import train_step
from tests.dist.meshes import mesh_of, whole_gradients, whole_parameters
from tests.dist.test_layout_invariance import F32, F64, assert_same_training
from tests.pairs import make_sentences, objective_of, pair_config, prepared_pairs

STEPS = 4
GLOBAL_BATCH = 8

# (tp, dp, micro batch)
LAYOUTS = [(2, 1, 8), (4, 1, 8), (1, 2, 4), (2, 2, 2), (1, 1, 3), (1, 4, 1)]


def steps(
    tp: int,
    dp: int,
    micro: int,
    dtype: torch.dtype,
    folder: str,
    changes: tuple[str, ...],
    count: int = STEPS,
) -> dict[str, Any]:
    """Train, then validate: everything that a run would report, and the gradients of the last step."""
    mesh = mesh_of(tp, dp)
    batch = (f"train.global_batch_size={GLOBAL_BATCH}", f"train.micro_batch_size={micro}")
    config = pair_config(Path(folder), *batch, *changes)
    objective = objective_of(config, prepared_pairs(config), mesh)
    rng = RngStreams(7, mesh, torch.device("cpu"))
    model = build_model(config.model, tp=mesh.tp, rng=rng, seed=7, objective="masked_lm", dtype=dtype)
    initial = whole_parameters(model, mesh)
    replica = replicate(model, mesh.dp)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    window = Window(mesh, torch.device("cpu"), tokens=1, flops=1.0, hardware_flops=1.0, peak=None)
    mine = GLOBAL_BATCH // dp
    for step in range(1, count + 1):
        first = (step - 1) * GLOBAL_BATCH + mesh.dp.rank * mine
        share, norm, figures = train_step(
            replica,
            optimizer,
            objective.micro_batches(np.arange(first, first + mine)),
            lr=3e-3,
            clip_grad_norm=0.1,
            mesh=mesh,
            autocast=nullcontext,
        )
        window.add(step, 3e-3, share, norm, figures=figures)
    records, _ = window.close()
    gradients = whole_gradients(model, mesh)
    state = torch.get_rng_state()
    found = objective.validate(model, None)
    part = objective.validate(model, 5)
    assert torch.equal(state, torch.get_rng_state()), "validation draws no random numbers"
    assert model.training, "validation leaves the mode as it was"
    assert found is not None
    assert part is not None
    return {
        "initial": initial,
        "losses": [r.loss for r in records],
        "norms": [r.grad_norm for r in records],
        "figures": [r.figures for r in records],
        "validations": [found.values, part.values],
        "gradients": gradients,
        "parameters": whole_parameters(model, mesh),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(make_sentences(tmp_path_factory.mktemp("pairs")))
    prepared_pairs(pair_config(Path(folder)))  # once, as a launcher does, before ranks read it
    return folder


@pytest.mark.parametrize(
    ("layernorm", "dtype"), [("pre", torch.float64), ("post", torch.float64), ("pre", torch.float32)]
)
def test_steps_and_figures_are_the_same_at_every_layout(pool, folder, layernorm, dtype):
    changes = (f"model.layernorm={layernorm}", "model.init_std=0.05")
    # A key bias's gradient is rounding alone, which Adam divides by its own size: up to a step of lr each.
    bounds, close = (F64, 1e-12) if dtype == torch.float64 else (F32 | {"key bias": 1e-4}, 1e-5)
    one = pool(1).run(steps, 1, 1, GLOBAL_BATCH, dtype, folder, changes)[0]
    assert one["losses"][-1] < one["losses"][0], "the steps learn something"
    for tp, dp, micro in LAYOUTS:
        for rank, other in enumerate(pool(tp * dp).run(steps, tp, dp, micro, dtype, folder, changes)):
            who = f"tp={tp} dp={dp} micro={micro} rank={rank}"
            assert_same_training(one, other, bounds, who)
            for a, b in zip(one["figures"], other["figures"], strict=True):
                assert b == pytest.approx(a, rel=close), who
            for a, b in zip(one["validations"], other["validations"], strict=True):
                assert b == pytest.approx(a, rel=close), who


def test_the_loss_is_a_mean_over_masked_tokens_and_one_over_samples_not_over_micro_batches(pool, folder):
    """Samples differ in how many tokens they have masked, so a mean of means would be another number."""
    config = pair_config(Path(folder), f"train.global_batch_size={GLOBAL_BATCH}")
    numbers = np.arange(GLOBAL_BATCH)
    batch = objective_of(config, prepared_pairs(config), mesh_of(1, 1)).train.batch(numbers)
    masked = batch.masked_weights.sum(axis=1)
    assert len(set(masked.tolist())) > 1
    first = pool(1).run(steps, 1, 1, 1, torch.float64, folder, ("model.init_std=0.05",), 1)[0]
    rng = RngStreams(7, mesh_of(1, 1), torch.device("cpu"))
    model = build_model(
        pair_config(Path(folder), "model.init_std=0.05").model,
        tp=mesh_of(1, 1).tp,
        rng=rng,
        seed=7,
        objective="masked_lm",
        dtype=torch.float64,
    )
    with torch.no_grad():
        hidden = model.hidden_states(*(torch.from_numpy(x) for x in (batch.ids, batch.segments, batch.real)))
        head, rows = model.lm_head, torch.arange(GLOBAL_BATCH)[:, None]
        x = torch.nn.functional.gelu(head.dense(hidden[rows, torch.from_numpy(batch.masked_at)]))
        logits = (head.norm(x) @ model.embedding.word.weight.T + head.bias)[..., : config.model.vocab_size]
        nll = -logits.log_softmax(-1).gather(-1, torch.from_numpy(batch.masked_ids)[..., None])[..., 0]
        masked_loss = nll[torch.from_numpy(batch.masked_weights) == 1].mean().item()
        order = model.order_head(model.pooled(hidden))
        order_loss = torch.nn.functional.cross_entropy(order, torch.from_numpy(batch.swapped)).item()
    assert first["losses"][0] == pytest.approx(masked_loss + order_loss, rel=1e-12)
    assert first["figures"][0][:2] == pytest.approx((masked_loss, order_loss), rel=1e-12)


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (2, 2)])
def test_before_anything_is_drawn_the_first_losses_are_ln_v_and_ln_2(pool, folder, tp, dp):
    for found in pool(tp * dp).run(steps, tp, dp, 2, torch.float32, folder, ("model.init_std=0",), 1):
        assert found["figures"][0][:2] == pytest.approx((math.log(37), math.log(2)), abs=1e-6)
        assert found["losses"][0] == pytest.approx(math.log(37) + math.log(2), abs=1e-6)


def test_documents_of_one_or_two_words_train_without_a_nan(pool, tmp_path):
    folder = make_sentences(tmp_path, 20, longest=1)
    (found,) = pool(1).run(steps, 1, 1, 1, torch.float32, str(folder), (), 20)
    assert all(math.isfinite(value) for value in found["losses"] + found["norms"])
    config = pair_config(folder)
    rows = dict(objective_of(config, prepared_pairs(config), mesh_of(1, 1)).rows())
    assert "4 of 16 documents have one sentence and give none" in rows["pairs"]

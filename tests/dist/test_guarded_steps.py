"""A step that is not finite on one rank is skipped by all of them and leaves no trace; fp16 trains."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.data_parallel import replicate
from mlm.parallel.device import autocast_for
from mlm.train.guard import Guard, Scaling, Verdict
from mlm.train.step import train_step
from tests.dist.meshes import mesh_of, tiny_model
from tests.dist.recording import Recorder, elements
from tests.dist.test_layout_invariance import TOKENS, micro_batches

CPU = torch.device("cpu")


def state_of(model: nn.Module, optimizer: AdamW) -> list[torch.Tensor]:
    moments = [t for _, *both in optimizer.named_moments() for t in both]
    return [t.detach().clone() for t in (*model.parameters(), *moments)]


def guarded_steps(
    tp: int, dp: int, steps: list[int], bad: dict[int, str], precision: str = "fp32", scale: float = 1.0
) -> dict[str, Any]:
    """Train the given steps; in step n the gradient of parameter bad[n] gets an inf on rank 1 only."""
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh, torch.float32, init_std=0.02)
    replica = replicate(model, mesh.dp)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    scaling = Scaling(initial=scale, growth_steps=4, floor=1.0) if precision == "fp16" else None
    guard = Guard(mesh.dp, CPU, max_bad_steps=3, scaling=scaling)
    verdicts, scales, losses, unchanged = [], [], [], []
    for step in steps:
        before = state_of(model, optimizer)
        hook = None
        if step in bad and mesh.rank == 1:
            hook = model.get_parameter(bad[step]).register_hook(partial(torch.full_like, fill_value=math.inf))
        scales.append(None if guard.loss_scale is None else guard.loss_scale.item())
        share, *_ = train_step(
            replica,
            optimizer,
            micro_batches(step, mesh, 4),
            lr=3e-3,
            clip_grad_norm=1.0,
            mesh=mesh,
            autocast=autocast_for(precision, CPU),
            guard=guard,
        )
        if hook is not None:
            hook.remove()
        verdicts.append(Verdict(int(guard.verdict.item())))
        losses.append(share.item() * dp)
        after = state_of(model, optimizer)
        unchanged.append(all(torch.equal(a, b) for a, b in zip(before, after, strict=True)))
    end = state_of(model, optimizer)
    return {"verdicts": verdicts, "scales": scales, "losses": losses, "unchanged": unchanged, "end": end}


WEIGHTS = {"split": "layers.1.mlp.expand.weight", "replicated": "layers.0.attention_norm.bias"}


@pytest.mark.parametrize(("tp", "dp"), [(2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_an_infinite_gradient_on_rank_1_skips_the_step_on_all_ranks_and_leaves_no_trace(pool, tp, dp, kind):
    steps = [1, 2, 9, 3, 9, 9, 4]
    with_bad = pool(tp * dp).run(guarded_steps, tp, dp, steps, {9: WEIGHTS[kind]})
    without = pool(tp * dp).run(guarded_steps, tp, dp, [1, 2, 3, 4], {})
    for rank, (a, b) in enumerate(zip(with_bad, without, strict=True)):
        assert [v is Verdict.NOT_FINITE for v in a["verdicts"]] == [s == 9 for s in steps], rank
        assert a["unchanged"] == [s == 9 for s in steps], rank
        # The following steps, Adam's bias corrections included, are those of a run without the bad ones.
        assert all(torch.equal(x, y) for x, y in zip(a["end"], b["end"], strict=True)), rank


def guard_communication(tp: int, dp: int) -> list[int]:
    mesh = mesh_of(tp, dp)
    guard = Guard(mesh.dp, CPU, max_bad_steps=0)
    with Recorder() as seen:
        guard.judge(torch.zeros(()), torch.zeros((), dtype=torch.float64))
    return elements(seen.collectives())


def test_judging_a_step_moves_two_elements_over_dp_and_nothing_over_tp(pool):
    assert pool(2).run(guard_communication, 2, 1) == [[], []]
    assert pool(2).run(guard_communication, 1, 2) == [[2], [2]]


def loss_infinite_on_rank_1(dp: int) -> float:
    mesh = mesh_of(1, dp)
    guard = Guard(mesh.dp, CPU, max_bad_steps=0)
    share = torch.tensor(math.inf if mesh.rank == 1 else 2.0)
    return guard.judge(share, torch.ones((), dtype=torch.float64)).item()


def test_an_infinite_loss_on_one_replica_skips_the_step_on_all(pool):
    assert pool(2).run(loss_infinite_on_rank_1, 2) == [1.0, 1.0]


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (2, 1), (2, 2)])
def test_fp16_finds_its_scale_and_follows_fp32(pool, tp, dp):
    # Gradients of this model overflow at 2^30, so the scale has to come down before anything is learned.
    overflowing = pool(tp * dp).run(guarded_steps, tp, dp, list(range(1, 41)), {}, "fp16", 2.0**30)
    for result in overflowing:
        skipped = [v is Verdict.OVERFLOW for v in result["verdicts"]]
        assert 1 <= sum(skipped) <= 30
        assert result["unchanged"] == skipped
        for before, after, overflow in zip(result["scales"], result["scales"][1:], skipped, strict=False):
            assert after == before / 2 if overflow else after in (before, 2 * before)
        assert result["scales"] == overflowing[0]["scales"]
    steps = list(range(1, 21))
    narrow = pool(tp * dp).run(guarded_steps, tp, dp, steps, {}, "fp16", 2.0**10)[0]
    wide = pool(tp * dp).run(guarded_steps, tp, dp, steps, {}, "fp32")[0]
    assert narrow["verdicts"].count(Verdict.UPDATED) == 20
    assert wide["losses"][-1] < wide["losses"][0]
    # fp16 keeps 11 bits.
    assert narrow["losses"] == pytest.approx(wide["losses"], rel=5 * 2.0**-11)


def smallest_gradients(scale: float | None) -> float:
    """The share of the elements of the first layer's weight gradient that fp16 has rounded to zero."""
    mesh = mesh_of(1, 1)
    model = tiny_model(mesh, torch.float32, init_std=0.02)
    optimizer = AdamW(parameter_groups(model, 0.0), beta1=0.9, beta2=0.95, eps=1e-8)
    scaling = None if scale is None else Scaling(initial=scale, growth_steps=100, floor=1.0)
    train_step(
        model,
        optimizer,
        micro_batches(1, mesh, 8, 1_000_000 * TOKENS),  # as one of a million micro batches
        lr=0.0,
        clip_grad_norm=None,
        mesh=mesh,
        autocast=autocast_for("fp16", CPU),
        guard=Guard(mesh.dp, CPU, max_bad_steps=0, scaling=scaling),
    )
    gradient = model.get_parameter("layers.0.mlp.expand.weight").grad
    return (gradient == 0).double().mean().item()


def test_the_scale_keeps_gradients_that_fp16_would_round_to_zero():
    assert smallest_gradients(None) > 0.5
    assert smallest_gradients(2.0**26) < 0.01


def test_steps_without_a_guard_are_the_same_to_the_bit(pool):
    def plain() -> list[torch.Tensor]:
        mesh = mesh_of(1, 1)
        model = tiny_model(mesh, torch.float32, init_std=0.02)
        optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
        for step in (1, 2, 3):
            train_step(
                model,
                optimizer,
                micro_batches(step, mesh, 4),
                lr=3e-3,
                clip_grad_norm=1.0,
                mesh=mesh,
                autocast=nullcontext,
            )
        return state_of(model, optimizer)

    guarded = guarded_steps(1, 1, [1, 2, 3], {})["end"]
    assert all(torch.equal(a, b) for a, b in zip(plain(), guarded, strict=True))

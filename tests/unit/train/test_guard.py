"""Verdicts on steps and the dynamic loss scale, against torch's own gradient scaler and by hand."""

from __future__ import annotations

import math
import random

import pytest
import torch

from mlm.checkpoint.state import TrainingState
from mlm.parallel.mesh import Axis
from mlm.train.guard import Guard, Scaling, Verdict

INF, NAN = math.inf, math.nan
CPU = torch.device("cpu")


def guard(max_bad_steps: int = 0, scaling: Scaling | None = None, **state: float) -> Guard:
    return Guard(Axis.single("dp"), CPU, max_bad_steps=max_bad_steps, scaling=scaling, **state)


def judged(of: Guard, *steps: tuple[float, float]) -> list[tuple[Verdict, float]]:
    """(verdict, whether skipped) of steps with that loss and gradient norm."""
    found = []
    for loss, norm in steps:
        skip = of.judge(torch.tensor(loss), torch.tensor(norm, dtype=torch.float64)).item()
        found.append((Verdict(int(of.verdict.item())), skip))
    return found


@pytest.mark.parametrize(("loss", "norm"), [(NAN, 1.0), (INF, 1.0), (1.0, INF), (1.0, NAN), (NAN, NAN)])
def test_without_scaling_what_is_not_finite_is_skipped_and_nothing_else(loss, norm):
    of = guard(max_bad_steps=3)
    found = judged(of, (1.0, 1.0), (loss, norm), (1.0, 3e38))
    assert found == [(Verdict.UPDATED, 0), (Verdict.NOT_FINITE, 1), (Verdict.UPDATED, 0)]
    assert of.loss_scale is None


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_after_more_bad_steps_in_a_row_than_allowed_no_step_changes_anything(allowed):
    bad, good = (1.0, NAN), (1.0, 1.0)
    tolerated = [bad] * allowed + [good]
    found = judged(guard(allowed), *tolerated, *tolerated, *[bad] * (allowed + 1), good, bad, good)
    verdicts = [verdict for verdict, _ in found]
    row = [Verdict.NOT_FINITE] * allowed
    assert verdicts[: -3 - allowed - 1] == 2 * [*row, Verdict.UPDATED]
    assert verdicts[-3 - allowed - 1 :] == [*row, Verdict.NOT_FINITE, *[Verdict.HALTED] * 3]
    assert all(skip == (verdict is not Verdict.UPDATED) for verdict, skip in found)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_scale_moves_as_torchs_gradient_scaler(seed):
    chance = random.Random(seed)
    overflows = [chance.random() < 0.15 for _ in range(200)]
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=7)
    ours = guard(scaling=Scaling(initial=2.0**10, growth_steps=7, floor=2.0**-20))
    for overflow in overflows:
        assert ours.loss_scale.item() == theirs.get_scale()
        theirs.scale(torch.ones(()))  # makes its state
        parameter.grad = torch.full((3,), INF if overflow else 1.0)
        theirs.step(optimizer)
        theirs.update()
        ((verdict, skip),) = judged(ours, (1.0, INF if overflow else 1.0))
        assert (verdict, skip) == ((Verdict.OVERFLOW, 1) if overflow else (Verdict.UPDATED, 0))
    assert ours.good_steps.item() == theirs.state_dict()["_growth_tracker"]


def test_the_scale_stops_at_its_floor_where_an_overflow_counts_as_bad():
    of = guard(max_bad_steps=1, scaling=Scaling(initial=8.0, growth_steps=100, floor=3.0))
    scales, verdicts = [], []
    for _ in range(6):
        ((verdict, _),) = judged(of, (1.0, INF))
        verdicts.append(verdict)
        scales.append(of.loss_scale.item())
    assert scales == [4.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    assert verdicts == [Verdict.OVERFLOW] * 2 + [Verdict.NOT_FINITE] * 2 + [Verdict.HALTED] * 2


def test_a_loss_that_is_not_finite_is_no_overflow_and_leaves_the_scale():
    of = guard(max_bad_steps=5, scaling=Scaling(initial=8.0, growth_steps=2, floor=1.0))
    assert judged(of, (NAN, NAN), (INF, 1.0)) == [(Verdict.NOT_FINITE, 1)] * 2
    assert of.loss_scale.item() == 8.0


def test_overflows_neither_count_as_bad_steps_nor_end_a_row_of_them():
    of = guard(max_bad_steps=2, scaling=Scaling(initial=2.0**20, growth_steps=100, floor=1.0))
    found = [
        verdict for verdict, _ in judged(of, *[(1.0, INF)] * 4, *[(NAN, NAN), (1.0, INF)] * 3, (1.0, 1.0))
    ]
    assert found[:4] == [Verdict.OVERFLOW] * 4
    assert (
        found[4:] == [Verdict.NOT_FINITE, Verdict.OVERFLOW] * 2 + [Verdict.NOT_FINITE] + [Verdict.HALTED] * 2
    )


def test_the_scale_doubled_for_ever_stays_finite():
    of = guard(scaling=Scaling(initial=2.0**126, growth_steps=1, floor=1.0))
    judged(of, *[(1.0, 1.0)] * 5)
    assert of.loss_scale.item() == 2.0**127


def test_a_guard_made_from_a_checkpoint_goes_on_as_the_unbroken_one():
    scaling = Scaling(initial=2.0**16, growth_steps=4, floor=1.0)
    steps = [(1.0, INF), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, INF), (1.0, 1.0)] * 3
    for cut in range(1, len(steps)):
        unbroken, first = guard(scaling=scaling), guard(scaling=scaling)
        judged(unbroken, *steps)
        verdicts = [verdict for verdict, _ in judged(first, *steps[:cut])]
        state = first.settled(TrainingState(step=cut, updates=cut), verdicts)
        overflows = sum(norm == INF for _, norm in steps[:cut])
        assert (state.updates, state.skipped_steps) == (cut - overflows, overflows)
        second = guard(scaling=scaling, loss_scale=state.loss_scale, good_steps=state.good_steps)
        judged(second, *steps[cut:])
        assert second.loss_scale.item() == unbroken.loss_scale.item()
        assert second.good_steps.item() == unbroken.good_steps.item()

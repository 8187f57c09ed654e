"""The global gradient norm and clipping against torch's own on the undivided model."""

from __future__ import annotations

import math

import pytest
import torch

from mlm.parallel.grads import clip_by_norm_, global_grad_norm
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_gradients


def norm_and_clipped(tp: int) -> tuple[float, dict[str, torch.Tensor]]:
    mesh = mesh_of(tp, 1)
    model = tiny_model(mesh)
    ids = torch.arange(2 * TINY.seq_length).view(2, -1) % TINY.vocab_size
    model(ids, ids, torch.ones(ids.shape, dtype=torch.float64)).backward()
    norm = global_grad_norm(model, mesh.tp)
    clip_by_norm_(model, norm, 0.5)
    return norm.item(), whole_gradients(model, mesh)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_norm_and_clipping_equal_torchs_on_the_undivided_model(pool, tp):
    model = tiny_model(mesh_of(1, 1))
    ids = torch.arange(2 * TINY.seq_length).view(2, -1) % TINY.vocab_size
    model(ids, ids, torch.ones(ids.shape, dtype=torch.float64)).backward()
    expected_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
    for norm, gradients in pool(tp).run(norm_and_clipped, tp):
        assert norm == pytest.approx(expected_norm, rel=1e-13)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-11, atol=1e-15)


def test_a_norm_below_the_limit_changes_nothing():
    model = tiny_model(mesh_of(1, 1))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-6)
    before = [p.grad.clone() for p in model.parameters()]
    clip_by_norm_(model, global_grad_norm(model, mesh_of(1, 1).tp), 1.0)
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters(), strict=True))


def test_large_finite_gradients_have_a_finite_norm_and_are_scaled_not_zeroed():
    model = tiny_model(mesh_of(1, 1), torch.float32)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e30)
    count = sum(p.numel() for p in model.parameters())
    norm = global_grad_norm(model, mesh_of(1, 1).tp)
    assert norm.item() == pytest.approx(1e30 * count**0.5, rel=1e-6)
    clip_by_norm_(model, norm, 1.0)
    assert global_grad_norm(model, mesh_of(1, 1).tp).item() == pytest.approx(1.0, rel=1e-5)


def norms_with_a_bad_element(tp: int, where: str, value: float) -> float:
    """The norm on this rank when one element of one gradient is bad on rank 1 only."""
    mesh = mesh_of(tp, 1)
    model = tiny_model(mesh, torch.float32)
    for name, parameter in model.named_parameters():
        parameter.grad = torch.ones_like(parameter)
        if name == where and mesh.tp.rank == 1:
            parameter.grad.view(-1)[0] = value
    return global_grad_norm(model, mesh.tp).item()


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["layers.1.mlp.expand.weight", "layers.0.attention_norm.bias"])
def test_what_is_not_finite_on_one_rank_makes_the_norm_of_all_ranks_so(pool, where, value):
    norms = pool(2).run(norms_with_a_bad_element, 2, where, value)
    assert not any(math.isfinite(norm) for norm in norms), norms


@pytest.mark.parametrize("limit", [None, 0.5, 1e9])
def test_scaled_gradients_are_clipped_by_the_true_norm_and_come_out_unscaled(limit):
    model = tiny_model(mesh_of(1, 1))
    ids = torch.arange(2 * TINY.seq_length).view(2, -1) % TINY.vocab_size
    expected = tiny_model(mesh_of(1, 1))
    for each, scale in ((model, 1024.0), (expected, 1.0)):
        each(ids, ids, torch.full(ids.shape, scale, dtype=torch.float64)).backward()
    if limit is not None:
        torch.nn.utils.clip_grad_norm_(expected.parameters(), limit)
    scale = torch.tensor(1024.0)
    clip_by_norm_(model, global_grad_norm(model, mesh_of(1, 1).tp) / scale, limit, scale)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-15)

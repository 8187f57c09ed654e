"""The global gradient norm and clipping against torch's own on the undivided model."""

from __future__ import annotations

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

"""AdamW against torch.optim.AdamW, and the paper's rule for weight decay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mlm.optim.adamw import AdamW, parameter_groups
from tests.dist.meshes import mesh_of, tiny_model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ten_steps_equal_torchs_optimizer(dtype):
    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3)).to(dtype)

    ours, theirs = model(), model()
    groups = parameter_groups(ours, 0.1)
    optimizer = AdamW(groups, beta1=0.9, beta2=0.95, eps=1e-8)
    decay = [p for p in theirs.parameters() if p.dim() >= 2]
    rest = [p for p in theirs.parameters() if p.dim() < 2]
    reference = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        eps=1e-8,
        foreach=False,
    )
    x = torch.randn(11, 5, dtype=dtype)
    for step in range(1, 11):
        lr = 0.01 * step
        for each in (ours, theirs):
            each.zero_grad()
            each(x).square().sum().backward()
        optimizer.step(lr)
        for group in reference.param_groups:
            group["lr"] = lr
        reference.step()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_with_zero_gradients_matrices_shrink_by_lr_times_decay_and_nothing_else_moves():
    model = tiny_model(mesh_of(1, 1))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    groups = parameter_groups(model, 1.0)
    optimizer = AdamW(groups, beta1=0.9, beta2=0.95, eps=1e-8)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(1e-3)
    for name, parameter in model.named_parameters():
        scale = 1 - 1e-3 if parameter.dim() >= 2 else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * scale, rtol=1e-14, atol=0)


def test_the_groups_hold_every_parameter_once_and_vectors_never_decay():
    model = tiny_model(mesh_of(1, 1))
    decay, rest = parameter_groups(model, 0.01)
    assert sum(g.num_elements for g in (decay, rest)) == sum(p.numel() for p in model.parameters())
    assert rest.weight_decay == 0.0
    assert all(p.dim() == 1 for p in rest.parameters.values())
    assert all(p.dim() == 2 for p in decay.parameters.values())
    assert "embedding.word.weight" in decay.parameters
    assert "head.weight" not in decay.parameters, "tied to the embedding, it counts once"


def test_a_skipped_step_changes_nothing_and_the_next_is_as_if_it_had_not_been():
    def trained(with_skipped: bool) -> tuple[nn.Module, AdamW]:
        model = tiny_model(mesh_of(1, 1), torch.float32)
        optimizer = AdamW(parameter_groups(model, 0.1), beta1=0.9, beta2=0.95, eps=1e-8)
        for step in range(4):
            if with_skipped and step in (0, 2):
                before = [t.clone() for t in state(model, optimizer)]
                for parameter in model.parameters():
                    parameter.grad = torch.full_like(parameter, float("nan"))
                optimizer.step(1e-2, torch.ones(()))
                assert all(torch.equal(a, b) for a, b in zip(before, state(model, optimizer), strict=True))
            for number, parameter in enumerate(model.parameters()):
                generator = torch.Generator().manual_seed(100 * step + number)
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step(1e-2, torch.zeros(()))
        return model, optimizer

    def state(model: nn.Module, optimizer: AdamW) -> list[torch.Tensor]:
        return [*model.parameters(), *(t for _, *both in optimizer.named_moments() for t in both)]

    for a, b in zip(state(*trained(True)), state(*trained(False)), strict=True):
        assert torch.equal(a, b)

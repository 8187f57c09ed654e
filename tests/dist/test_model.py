"""The split GPT-2 against the transformer written down densely, in a page, without any of our layers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mlm.config.schema import Gelu
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_gradients, whole_parameters

CASES: dict[str, dict[str, Any]] = {
    "tied, biases, tanh": {},
    "untied, no biases, erf, another width": {
        "tie_embeddings": False,
        "bias": False,
        "gelu": Gelu.erf,
        "ffn_hidden_size": 24,
    },
}


def dense_loss(p: dict[str, Tensor], ids: Tensor, targets: Tensor, gelu: Gelu) -> Tensor:
    """Mean nll by the textbook: full matrices, an explicit mask, softmax over the real vocabulary."""
    seq, heads = ids.shape[1], TINY.num_heads

    def norm(x: Tensor, name: str) -> Tensor:
        variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        return (x - mean) / (variance + TINY.layernorm_eps).sqrt() * p[f"{name}.weight"] + p.get(
            f"{name}.bias", 0.0
        )

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ p[f"{name}.weight"].T + p.get(f"{name}.bias", 0.0)

    def activation(x: Tensor) -> Tensor:
        if gelu is Gelu.erf:
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = p["embedding.word.weight"][ids] + p["embedding.position.weight"][:seq]
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    for i in range(TINY.num_layers):
        name = f"layers.{i}"
        qkv = linear(norm(x, f"{name}.attention_norm"), f"{name}.attention.qkv")
        head_outputs = []
        for head in qkv.chunk(heads, dim=-1):  # rows are ordered [heads, 3, head_dim]
            q, k, v = head.chunk(3, dim=-1)
            scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
            head_outputs.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v)
        x = x + linear(torch.cat(head_outputs, dim=-1), f"{name}.attention.projection")
        hidden = activation(linear(norm(x, f"{name}.mlp_norm"), f"{name}.mlp.expand"))
        x = x + linear(hidden, f"{name}.mlp.contract")
    table = p.get("head.weight", p["embedding.word.weight"])[: TINY.vocab_size]
    logits = norm(x, "final_norm") @ table.T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, TINY.vocab_size, (3, TINY.seq_length + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def split_loss_and_gradients(tp: int, changes: dict[str, Any]) -> tuple[float, dict[str, Tensor], Any]:
    mesh = mesh_of(tp, 1)
    model = tiny_model(mesh, **changes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # zero at the start, which would hide a bias added twice
                parameter.copy_(
                    torch.linspace(-1, 1, parameter.numel()).sin() + mesh.tp.rank * _is_split(name)
                )
    ids, targets = batch()
    weights = torch.full(ids.shape, 1.0 / ids.numel(), dtype=torch.float64)
    loss = model(ids, targets, weights)
    loss.backward()
    return loss.item(), whole_parameters(model, mesh), whole_gradients(model, mesh)


def _is_split(name: str) -> bool:
    return "qkv" in name or "expand" in name


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_equal_the_dense_transformers(pool, case, tp):
    changes = CASES[case]
    ids, targets = batch()
    for loss, parameters, gradients in pool(tp).run(split_loss_and_gradients, tp, changes):
        dense = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        expected = dense_loss(dense, ids, targets, changes.get("gelu", TINY.gelu))
        assert loss == pytest.approx(expected.item(), rel=1e-13)
        expected.backward()
        assert gradients.keys() == dense.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, dense[name].grad, rtol=1e-10, atol=1e-14, msg=name)

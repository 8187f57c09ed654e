"""Each layer of mlm.parallel against the dense maths it stands for, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mlm.parallel.collectives import copy_to_tp, reduce_from_tp
from mlm.parallel.cross_entropy import linear_cross_entropy, vocab_parallel_cross_entropy
from mlm.parallel.embedding import VocabParallelEmbedding
from mlm.parallel.linear import ColumnParallelLinear, RowParallelLinear
from mlm.parallel.norm import LayerNorm
from mlm.parallel.parameter import Declaration, DeclaringModule
from tests.dist.meshes import mesh_of, whole

DEGREES = [1, 2, 4]
F64 = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def assert_equal(actual: Tensor, expected: Tensor, what: str, tolerance: float = 1e-12) -> None:
    error = (actual - expected).abs().max().item() / max(expected.abs().max().item(), 1e-300)
    assert actual.shape == expected.shape, f"{what}: {actual.shape} != {expected.shape}"
    assert error <= tolerance, f"{what}: relative error {error:.2e} > {tolerance:.0e}"


def filled(layer: DeclaringModule, **full: Tensor) -> dict[str, Declaration]:
    with torch.no_grad():
        for name, value in full.items():
            getattr(layer, name).copy_(layer.declarations[name].local_part(value, layer.tp))
    return layer.declarations


def gradient(layer: DeclaringModule, name: str, mesh: Any) -> Tensor:
    return whole(getattr(layer, name).grad, layer.declarations[name], mesh)


def column_parallel_linear(tp: int, overlap: bool, transposed_gradient: bool) -> None:
    mesh = mesh_of(tp, 1)
    x, w, b = draw(3, 5, 8, seed=1), draw(16, 8, seed=2), draw(16, seed=3)
    out_grad = draw(3, 5, 16, seed=4)

    dense = [t.clone().requires_grad_() for t in (x, w, b)]
    expected = F.linear(*dense)
    expected.backward(out_grad)

    layer = ColumnParallelLinear(8, 16, tp=mesh.tp, init_std=0.02, overlap=overlap, dtype=F64)
    filled(layer, weight=w, bias=b)
    mine = x.clone().requires_grad_()
    y = layer(mine)
    columns = mesh.tp.slice_of(16)
    assert_equal(y, expected[..., columns], "forward")
    local_grad = out_grad[..., columns]
    if transposed_gradient:
        local_grad = local_grad.transpose(0, 1).contiguous().transpose(0, 1)
        assert not local_grad.is_contiguous(), "the case needs a gradient that is not contiguous"
    y.backward(local_grad)
    assert_equal(mine.grad, dense[0].grad, "input gradient")
    assert_equal(gradient(layer, "weight", mesh), dense[1].grad, "weight gradient")
    assert_equal(gradient(layer, "bias", mesh), dense[2].grad, "bias gradient")


@pytest.mark.parametrize("transposed_gradient", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("tp", DEGREES)
def test_column_parallel_equals_dense_matmul_and_its_gradients(pool, tp, overlap, transposed_gradient):
    pool(tp).run(column_parallel_linear, tp, overlap, transposed_gradient)


def row_parallel_linear(tp: int) -> None:
    mesh = mesh_of(tp, 1)
    x, w, b, out_grad = draw(3, 5, 16, seed=1), draw(8, 16, seed=2), draw(8, seed=3), draw(3, 5, 8, seed=4)
    dense = [t.clone().requires_grad_() for t in (x, w, b)]
    expected = F.linear(*dense)
    expected.backward(out_grad)

    layer = RowParallelLinear(16, 8, tp=mesh.tp, init_std=0.02, dtype=F64)
    filled(layer, weight=w, bias=b)
    mine = x[..., mesh.tp.slice_of(16)].clone().requires_grad_()
    y = layer(mine)
    assert_equal(y, expected, "forward")
    y.backward(out_grad)
    assert_equal(mine.grad, dense[0].grad[..., mesh.tp.slice_of(16)], "input gradient")
    assert_equal(gradient(layer, "weight", mesh), dense[1].grad, "weight gradient")
    assert_equal(gradient(layer, "bias", mesh), dense[2].grad, "bias gradient")


@pytest.mark.parametrize("tp", DEGREES)
def test_row_parallel_equals_dense_matmul_and_its_gradients(pool, tp):
    pool(tp).run(row_parallel_linear, tp)


def f_and_g(tp: int) -> None:
    mesh = mesh_of(tp, 1)
    x = draw(4, 3, seed=mesh.tp.rank).requires_grad_()
    kept = x.detach().clone()
    total = sum(draw(4, 3, seed=r) for r in range(tp))
    grads = [draw(3, 4, seed=10 + r).t() for r in range(tp)]  # not contiguous

    assert_equal(copy_to_tp(x, mesh.tp), kept, "f forward is the identity")
    (grad,) = torch.autograd.grad(copy_to_tp(x, mesh.tp), x, grads[mesh.tp.rank])
    assert_equal(grad, sum(grads), "f backward is the sum")
    assert_equal(grads[mesh.tp.rank], draw(3, 4, seed=10 + mesh.tp.rank).t(), "f leaves the gradient alone")

    assert_equal(reduce_from_tp(x, mesh.tp), total, "g forward is the sum")
    assert_equal(x.detach(), kept, "g leaves its input alone")
    (grad,) = torch.autograd.grad(reduce_from_tp(x, mesh.tp), x, grads[0])
    assert_equal(grad, grads[0], "g backward is the identity")


@pytest.mark.parametrize("tp", DEGREES)
def test_f_and_g_are_conjugate(pool, tp):
    pool(tp).run(f_and_g, tp)


def vocab_parallel_embedding(tp: int) -> None:
    mesh = mesh_of(tp, 1)
    table = draw(24, 6, seed=1)
    ids = torch.randint(0, 21, (3, 7), generator=torch.Generator().manual_seed(2))
    out_grad = draw(3, 7, 6, seed=3)
    dense = table.clone().requires_grad_()
    expected = F.embedding(ids, dense)
    expected.backward(out_grad)

    layer = VocabParallelEmbedding(21, 24, 6, tp=mesh.tp, init_std=0.02, dtype=F64)
    filled(layer, weight=table)
    y = layer(ids)
    assert_equal(y, expected, "forward")
    y.backward(out_grad)
    assert_equal(gradient(layer, "weight", mesh), dense.grad, "table gradient")


@pytest.mark.parametrize("tp", DEGREES)
def test_vocab_parallel_embedding_equals_a_table_look_up(pool, tp):
    pool(tp).run(vocab_parallel_embedding, tp)


def cross_entropy(tp: int, vocab_size: int, scale: float) -> None:
    mesh = mesh_of(tp, 1)
    padded = 24
    logits = draw(3, 7, padded, seed=1) * scale
    targets = torch.randint(0, vocab_size, (3, 7), generator=torch.Generator().manual_seed(2))
    out_grad = draw(3, 7, seed=3)
    dense = logits[..., :vocab_size].clone().requires_grad_()
    expected = F.cross_entropy(dense.flatten(0, 1), targets.flatten(), reduction="none").view(3, 7)
    expected.backward(out_grad)

    mine = logits[..., mesh.tp.slice_of(padded)].clone().requires_grad_()
    nll = vocab_parallel_cross_entropy(mine, targets, mesh.tp, vocab_size)
    assert_equal(nll, expected, "nll")
    nll.backward(out_grad)
    full_grad = whole(mine.grad, Declaration((3, 7, padded), split_dim=2), mesh)
    assert_equal(full_grad[..., :vocab_size], dense.grad, "logit gradient", 1e-11)
    assert full_grad[..., vocab_size:].abs().max() == 0 if vocab_size < padded else True


# 3 of 24: at tp=4 three ranks hold only padding. A scale of 1000 overflows any exponential left unshifted.
@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("vocab_size", [24, 19, 3])
@pytest.mark.parametrize("tp", DEGREES)
def test_vocab_parallel_cross_entropy_equals_dense_and_ignores_padding(pool, tp, vocab_size, scale):
    pool(tp).run(cross_entropy, tp, vocab_size, scale)


def fused_cross_entropy(tp: int, vocab_size: int, chunk_rows: int) -> None:
    mesh = mesh_of(tp, 1)
    padded = 24
    x, w = draw(3, 7, 5, seed=1), draw(padded, 5, seed=4)
    targets = torch.randint(0, vocab_size, (3, 7), generator=torch.Generator().manual_seed(2))
    token_weights = draw(3, 7, seed=3).abs()
    dense_x, dense_w = x.clone().requires_grad_(), w.clone().requires_grad_()
    logits = (dense_x @ dense_w.t())[..., :vocab_size]
    nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(3, 7)
    expected = (nll * token_weights).sum()
    (expected * 3.0).backward()

    my_x = x.clone().requires_grad_()
    my_w = w[mesh.tp.slice_of(padded)].clone().requires_grad_()
    chunk_bytes = chunk_rows * padded // tp * 8
    loss = linear_cross_entropy(my_x, my_w, targets, token_weights, mesh.tp, vocab_size, chunk_bytes)
    assert_equal(loss, expected, "loss")
    (loss * 3.0).backward()
    assert_equal(my_x.grad, dense_x.grad, "input gradient")
    assert_equal(whole(my_w.grad, Declaration((padded, 5), 0), mesh), dense_w.grad, "weight gradient")


@pytest.mark.parametrize("chunk_rows", [1, 4, 21, 100])
@pytest.mark.parametrize("vocab_size", [24, 19, 3])
@pytest.mark.parametrize("tp", DEGREES)
def test_chunked_output_layer_and_loss_equal_dense(pool, tp, vocab_size, chunk_rows):
    pool(tp).run(fused_cross_entropy, tp, vocab_size, chunk_rows)


@pytest.mark.parametrize("bias", [True, False])
def test_layernorm_equals_its_formula(bias):
    mesh = mesh_of(1, 1)
    layer = LayerNorm(6, tp=mesh.tp, eps=1e-3, bias=bias, dtype=F64)
    w, b, x = draw(6, seed=1), draw(6, seed=2), draw(4, 6, seed=3)
    filled(layer, weight=w, **({"bias": b} if bias else {}))
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    expected = (x - mean) / (variance + 1e-3).sqrt() * w + (b if bias else 0.0)
    assert_equal(layer(x), expected, "layernorm")


def test_a_dimension_that_tp_does_not_divide_is_refused():
    from mlm.errors import ConfigError
    from mlm.parallel.mesh import Axis

    with pytest.raises(ConfigError, match="not a multiple of tp=3"):
        ColumnParallelLinear(8, 16, tp=Axis("tp", 0, 3), init_std=0.02)

"""That it is tensor parallelism: what is held, what is sent, and when."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel import linear
from mlm.parallel.cross_entropy import vocab_parallel_cross_entropy
from mlm.parallel.data_parallel import replicate
from mlm.parallel.linear import ColumnParallelLinear
from mlm.parallel.parameter import named_declarations
from mlm.train.objectives.next_token import TokenBatch
from mlm.train.step import train_step
from tests.dist.meshes import TINY, mesh_of, tiny_model
from tests.dist.recording import Call, Recorder, elements

BATCH = 3
TOKENS = BATCH * TINY.seq_length
ACTIVATION = TOKENS * TINY.hidden_size


def forward_and_backward(tp: int) -> tuple[list[Call], list[Call]]:
    mesh = mesh_of(tp, 1)
    model = tiny_model(mesh)
    ids = torch.zeros(BATCH, TINY.seq_length, dtype=torch.long)
    with Recorder() as forward:
        loss = model(ids, ids, torch.ones(ids.shape))
    with Recorder() as backward:
        loss.backward()
    return forward.collectives(), backward.collectives()


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_every_collective_of_a_step_is_accounted_for(pool, tp):
    forward, backward = pool(tp).run(forward_and_backward, tp)[0]
    if tp == 1:
        assert forward == backward == []
        return
    assert {c.name for c in forward + backward} == {"allreduce"}
    # Forward: the embedding, then attention and MLP of each layer (g), then maximum, and sum of
    # exponentials with the target's logit, of each token.
    layers = [ACTIVATION] * 2 * TINY.num_layers
    assert elements(forward) == [ACTIVATION, *layers, TOKENS, 2 * TOKENS]
    # Backward: the output layer's input, then MLP and attention of each layer (f).
    assert elements(backward) == [ACTIVATION, *layers]


def loss_communication(tp: int) -> tuple[list[Call], list[Call]]:
    mesh = mesh_of(tp, 1)
    logits = torch.zeros(BATCH, TINY.seq_length, 4096 // tp, requires_grad=True)
    targets = torch.zeros(BATCH, TINY.seq_length, dtype=torch.long)
    with Recorder() as forward:
        nll = vocab_parallel_cross_entropy(logits, targets, mesh.tp, 4000)
    with Recorder() as backward:
        nll.sum().backward()
    return forward.collectives(), backward.collectives()


@pytest.mark.parametrize("tp", [2, 4])
def test_cross_entropy_moves_three_values_a_token_whatever_the_vocabulary(pool, tp):
    forward, backward = pool(tp).run(loss_communication, tp)[0]
    assert sum(elements(forward)) == 3 * TOKENS
    assert backward == []


def step_communication(tp: int, dp: int, micro_batches: int) -> list[Call]:
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh)
    replica = replicate(model, mesh.dp)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    ids = torch.zeros(2, TINY.seq_length + 1, dtype=torch.long)
    with Recorder() as seen:
        train_step(
            replica,
            optimizer,
            [TokenBatch(ids, ids.numel() * micro_batches * dp)] * micro_batches,
            lr=1e-3,
            clip_grad_norm=1.0,
            mesh=mesh,
            autocast=nullcontext,
        )
    reduced_over_dp = sum(p.numel() for p in model.parameters())
    return [*seen.collectives(), Call("local parameters", reduced_over_dp)]


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_each_gradient_element_is_reduced_over_dp_once_per_step(pool, micro_batches):
    *calls, local = pool(2).run(step_communication, 1, 2, micro_batches)[0]
    assert sum(elements(calls)) == local.numel


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_tensor_parallel_step_reduces_one_scalar_for_the_norm(pool, micro_batches):
    *calls, _ = pool(2).run(step_communication, 2, 1, micro_batches)[0]
    assert Counter(elements(calls))[1] == 1
    assert elements(calls)[-1] == 1


def column_backward_order(overlap: bool) -> list[str]:
    """The order of events in the backward of a column-parallel layer on this rank."""
    mesh = mesh_of(2, 1)
    layer = ColumnParallelLinear(8, 16, tp=mesh.tp, init_std=0.02, overlap=overlap)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    x = torch.ones(4, 8, requires_grad=True)
    y = layer(x)
    events: list[str] = []

    class Events(Recorder):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = len(self.calls)
            out = super().__torch_dispatch__(func, types, args, kwargs)
            events.extend(f"{c.name} {c.numel}" for c in self.calls[before:])
            return out

    original = linear.dist.all_reduce

    def all_reduce(*args: Any, **kwargs: Any) -> Any:
        work = original(*args, **kwargs)
        return None if work is None else _Waited(work, events)

    linear.dist.all_reduce = all_reduce
    try:
        with Events():
            y.sum().backward()
    finally:
        linear.dist.all_reduce = original
    return events


class _Waited:
    def __init__(self, work: Any, events: list[str]):
        self.work, self.events = work, events

    def wait(self) -> None:
        self.events.append("wait")
        self.work.wait()


def test_the_input_gradient_travels_while_the_weight_gradient_is_computed(pool):
    # 4x8 is the input's gradient, 8x8 (16/2 rows of 8) the weight's.
    for events in pool(2).run(column_backward_order, True):
        assert events == ["mm 32", "allreduce 32", "mm 64", "wait"]


def local_shapes(tp: int) -> dict[str, tuple[list[int], list[int], int | None]]:
    model = tiny_model(mesh_of(tp, 1), tie_embeddings=False)
    return {n: (list(p.shape), list(d.shape), d.split_dim) for n, p, d in named_declarations(model)}


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_every_local_shape_is_its_declaration_divided_by_tp(pool, tp):
    h, layers = TINY.hidden_size, TINY.num_layers
    expected_split = {
        "embedding.word.weight": 0,
        "embedding.position.weight": None,
        "final_norm.weight": None,
        "final_norm.bias": None,
        "head.weight": 0,
    }
    for i in range(layers):
        expected_split |= {
            f"layers.{i}.attention_norm.weight": None,
            f"layers.{i}.attention_norm.bias": None,
            f"layers.{i}.attention.qkv.weight": 0,
            f"layers.{i}.attention.qkv.bias": 0,
            f"layers.{i}.attention.projection.weight": 1,
            f"layers.{i}.attention.projection.bias": None,
            f"layers.{i}.mlp_norm.weight": None,
            f"layers.{i}.mlp_norm.bias": None,
            f"layers.{i}.mlp.expand.weight": 0,
            f"layers.{i}.mlp.expand.bias": 0,
            f"layers.{i}.mlp.contract.weight": 1,
            f"layers.{i}.mlp.contract.bias": None,
        }
    for shapes in pool(tp).run(local_shapes, tp):
        assert {name: split for name, (_, _, split) in shapes.items()} == expected_split
        for name, (local, full, split) in shapes.items():
            assert local == [n // tp if dim == split else n for dim, n in enumerate(full)], name
        assert shapes["layers.0.attention.qkv.weight"][1] == [3 * h, h]
        assert shapes["head.weight"][1] == [TINY.padded_vocab_size, h]

"""The same twenty steps at every layout: what tp=8 computes is what tp=1 computes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from mlm.config.schema import Gelu
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.optim.schedule import learning_rate
from mlm.parallel.data_parallel import replicate
from mlm.parallel.mesh import Mesh
from mlm.train.metrics import Window
from mlm.train.objectives.next_token import TokenBatch
from mlm.train.step import train_step
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_gradients, whole_parameters

STEPS = 20
GLOBAL_BATCH = 8
TOKENS = GLOBAL_BATCH * TINY.seq_length
# Clipping is active in every step: a norm that counted a replicated parameter twice would change them all.
CLIP = 0.1

# (tp, dp, micro batch)
LAYOUTS = [(2, 1, 8), (4, 1, 8), (1, 2, 4), (2, 2, 4), (1, 1, 2), (2, 2, 1), (1, 4, 2), (2, 1, 1)]

F64 = {"losses": 1e-12, "norms": 1e-12, "tensors": 1e-10, "key bias": 1e-12}
F32 = {"losses": 1e-5, "norms": 1e-5, "tensors": 2e-4, "key bias": 1e-5}


def twenty_steps(tp: int, dp: int, micro: int, dtype: torch.dtype, changes: dict[str, Any]) -> dict[str, Any]:
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh, dtype, **changes)
    initial = whole_parameters(model, mesh)
    replica = replicate(model, mesh.dp)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    window = Window(mesh, torch.device("cpu"), tokens=TOKENS, flops=1.0, hardware_flops=1.0, peak=None)
    for step in range(1, STEPS + 1):
        lr = learning_rate(step, lr=3e-3, min_lr=3e-4, warmup_steps=5, decay_steps=STEPS)
        share, norm, _ = train_step(
            replica,
            optimizer,
            micro_batches(step, mesh, micro),
            lr=lr,
            clip_grad_norm=CLIP,
            mesh=mesh,
            autocast=nullcontext,
        )
        window.add(step, lr, share, norm)
    records, _ = window.close()
    return {
        "initial": initial,
        "losses": [r.loss for r in records],
        "norms": [r.grad_norm for r in records],
        "gradients": whole_gradients(model, mesh),
        "parameters": whole_parameters(model, mesh),
    }


def micro_batches(step: int, mesh: Mesh, micro: int, global_tokens: int = TOKENS) -> list[TokenBatch]:
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(0, TINY.vocab_size, (GLOBAL_BATCH, TINY.seq_length + 1), generator=generator)
    mine = GLOBAL_BATCH // mesh.dp.size
    parts = ids[mesh.dp.rank * mine : (mesh.dp.rank + 1) * mine].split(micro)
    return [TokenBatch(part, global_tokens) for part in parts]


def assert_same_training(
    one: dict[str, Any], other: dict[str, Any], bounds: dict[str, float], who: str
) -> None:
    for name, tensor in one["initial"].items():
        assert torch.equal(tensor, other["initial"][name]), f"{who}: initial {name} differs"
    for kind in ("losses", "norms"):
        for step, (a, b) in enumerate(zip(one[kind], other[kind], strict=True), 1):
            assert abs(a - b) <= bounds[kind] * abs(a), f"{who}: {kind} of step {step}: {a!r} and {b!r}"
    for kind in ("gradients", "parameters"):
        assert one[kind].keys() == other[kind].keys()
        for name, a in one[kind].items():
            assert_close(a, other[kind][name], bounds, f"{who}: {kind} {name}")


def assert_close(a: Tensor, b: Tensor, bounds: dict[str, float], what: str) -> None:
    if what.endswith("qkv.bias"):
        # A constant added to every key moves all scores of a query alike: softmax and loss do not change,
        # the true gradient is zero, and what is left is rounding. Compared by its absolute size.
        a, b = (t.view(TINY.num_heads, 3, -1) for t in (a, b))
        key = (a[:, 1] - b[:, 1]).abs().max().item()
        assert key <= bounds["key bias"], f"{what}: key third differs by {key:.2e}"
        a, b = a[:, ::2], b[:, ::2]
    error = (a - b).abs().max().item() / a.abs().max().item()
    assert error <= bounds["tensors"], f"{what}: relative error {error:.2e} > {bounds['tensors']:.0e}"


CASES = {
    "tied, biases, tanh": {"init_std": 0.02},
    "untied, no biases, erf": {"init_std": 0.02, "tie_embeddings": False, "bias": False, "gelu": Gelu.erf},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "fp32"])
@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_are_the_same_at_every_layout(pool, case, dtype):
    changes = CASES[case]
    bounds = F64 if dtype == torch.float64 else F32
    one = pool(1).run(twenty_steps, 1, 1, GLOBAL_BATCH, dtype, changes)[0]
    assert one["losses"][-1] < one["losses"][0], "twenty steps learn something"
    assert min(one["norms"]) > CLIP, "clipping is active"
    for tp, dp, micro in LAYOUTS:
        for rank, result in enumerate(pool(tp * dp).run(twenty_steps, tp, dp, micro, dtype, changes)):
            assert_same_training(one, result, bounds, f"tp={tp} dp={dp} micro={micro} rank={rank}")


def replicated_parameters(tp: int, dp: int) -> dict[str, Tensor]:
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh, torch.float32)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    replica = replicate(model, mesh.dp)
    for step in range(1, 6):
        train_step(
            replica,
            optimizer,
            micro_batches(step, mesh, 2),
            lr=1e-2,
            clip_grad_norm=1.0,
            mesh=mesh,
            autocast=nullcontext,
        )
    return {n: p.detach() for n, p in model.named_parameters() if "norm" in n or "projection.bias" in n}


def test_replicated_parameters_stay_bit_identical_on_all_ranks(pool):
    ranks = pool(4).run(replicated_parameters, 2, 2)
    assert len(ranks[0]) == 12
    for rank, parameters in enumerate(ranks[1:], 1):
        for name, value in parameters.items():
            assert torch.equal(value, ranks[0][name]), f"{name} of rank {rank} drifted from rank 0"

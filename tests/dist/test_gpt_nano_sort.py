"""Real weights in GPT-2's layout, trained elsewhere, with activations recorded by their author."""

from __future__ import annotations

import base64
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mlm.config.compose import compose
from mlm.errors import ConfigError
from mlm.parallel.collectives import all_gathered
from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import named_declarations
from tests.dist.meshes import mesh_of, tiny_model

FOLDER = Path(os.environ.get("MLM_TEST_DATA", "")) / "gpt-nano-sort"

pytestmark = pytest.mark.skipif(
    not os.environ.get("MLM_TEST_DATA") or not FOLDER.is_dir(),
    reason="set MLM_TEST_DATA to a folder that holds gpt-nano-sort (minGPT's sorting model)",
)

LAYERS, HEADS, HIDDEN, SEQ, VOCAB = 3, 3, 48, 11, 3


def tensors(file: str) -> dict[str, Tensor]:
    content = json.loads((FOLDER / file).read_text())
    return {
        name: torch.from_numpy(np.frombuffer(base64.b64decode(value["data"]), np.float32).copy()).view(
            value["shape"]
        )
        for name, value in content.items()
        if name != "config"
    }


def from_gpt2(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """GPT-2's names to ours: QKV comes as three blocks [q | k | v]; this file stores weights [out, in]."""

    def per_head(stacked: Tensor) -> Tensor:
        return stacked.view(3, HEADS, HIDDEN // HEADS, *stacked.shape[1:]).transpose(0, 1).flatten(0, 2)

    ours = {
        "embedding.word.weight": theirs["transformer.wte.weight"],
        "embedding.position.weight": theirs["transformer.wpe.weight"],
        "final_norm.weight": theirs["transformer.ln_f.weight"],
        "final_norm.bias": theirs["transformer.ln_f.bias"],
        "head.weight": theirs["lm_head.weight"],
    }
    for i in range(LAYERS):
        a, b = f"layers.{i}", f"transformer.h.{i}"
        for kind in ("weight", "bias"):
            ours |= {
                f"{a}.attention_norm.{kind}": theirs[f"{b}.ln_1.{kind}"],
                f"{a}.attention.qkv.{kind}": per_head(theirs[f"{b}.attn.c_attn.{kind}"]),
                f"{a}.attention.projection.{kind}": theirs[f"{b}.attn.c_proj.{kind}"],
                f"{a}.mlp_norm.{kind}": theirs[f"{b}.ln_2.{kind}"],
                f"{a}.mlp.expand.{kind}": theirs[f"{b}.mlp.c_fc.{kind}"],
                f"{a}.mlp.contract.{kind}": theirs[f"{b}.mlp.c_proj.{kind}"],
            }
    return ours


def load(mesh: Mesh, padded: int) -> nn.Module:
    model = tiny_model(
        mesh,
        torch.float32,
        num_layers=LAYERS,
        hidden_size=HIDDEN,
        num_heads=HEADS,
        seq_length=SEQ,
        vocab_size=VOCAB,
        padded_vocab_size=padded,
        tie_embeddings=False,
    )
    weights = from_gpt2(tensors("gpt-nano-sort-model.json"))
    with torch.no_grad():
        for name, parameter, declaration in named_declarations(model):
            full = torch.zeros(declaration.shape)
            value = weights.pop(name)
            full[: len(value)] = value
            parameter.copy_(declaration.local_part(full, mesh.tp))
    assert not weights, f"unused: {list(weights)}"
    return model.eval()


@torch.no_grad()
def logits_error_and_sorted(tp: int, padded: int) -> tuple[float, int]:
    mesh = mesh_of(tp, 1)
    model = load(mesh, padded)

    def logits(ids: Tensor) -> Tensor:
        return all_gathered(model(ids), mesh.tp, dim=2)[..., :VOCAB]

    recorded = tensors("gpt-nano-sort-t0-partials.json")
    ids = recorded["idx"].long()
    error = (logits(ids) - recorded["lm_head"].view(3, SEQ, VOCAB)).abs().max().item()

    inputs = torch.tensor(list(itertools.product(range(VOCAB), repeat=6)))  # [729, 6]
    sequence = inputs
    for _ in range(6):
        sequence = torch.cat((sequence, logits(sequence)[:, -1].argmax(-1, keepdim=True)), dim=1)
    right = (sequence[:, 6:] == inputs.sort(dim=1).values).all(dim=1).sum().item()
    return error, int(right)


# 384 at tp=3: the second and third rank hold nothing but padding.
@pytest.mark.parametrize(("tp", "padded"), [(1, 3), (1, 384), (3, 3), (3, 384)])
def test_real_gpt2_weights_give_the_authors_logits_and_sort_every_input(pool, tp, padded):
    for error, right in pool(tp).run(logits_error_and_sorted, tp, padded):
        assert error < 1e-5
        assert right == 729


def test_a_padding_that_tp_does_not_divide_is_refused():
    def overrides(**extra: Any) -> list[str]:
        shape = dict(num_layers=3, hidden_size=48, num_heads=3, seq_length=11, vocab_size=3, **extra)
        return ["tp=3", *(f"model.{k}={v}" for k, v in shape.items())]

    from mlm.config.checks import check

    assert not any("padded" in p.where for p in check(compose(overrides(padded_vocab_size=384))))
    problems = check(compose(overrides(padded_vocab_size=128)))
    assert any("padded_vocab_size=128" in p.where and "tp=3" in str(p) for p in problems), problems
    with pytest.raises(ConfigError, match="tp=3"):
        load(Mesh.single().__class__(tp=_axis(3), pp=_axis(1), dp=_axis(1)), 128)


def _axis(size: int) -> Any:
    from mlm.parallel.mesh import Axis

    return Axis("tp", 0, size)

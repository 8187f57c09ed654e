"""Checkpoints as Megatron-LM writes them, made from dense tensors by the description of the format alone.

Nothing here comes from mlm: rows are picked by loops over heads, so a mistake would have to be made twice.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor


@dataclass(kw_only=True)
class Dense:
    """A model by its mathematics: Q, K and V apart, all matrices [out, in], vocabulary without padding."""

    hidden: int = 16
    heads: int = 4
    layers: int = 2
    inner: int = 24
    positions: int = 12
    vocab: int = 45
    bert: bool = False
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(1234)
        h, inner = self.hidden, self.inner

        def draw(*shape: int, around: float = 0.0) -> Tensor:
            return around + 0.3 * torch.randn(shape, generator=generator)

        def affine(name: str, out: int, width: int) -> None:
            self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"] = draw(out, width), draw(out)

        def norm(name: str) -> None:
            self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"] = draw(h, around=1.0), draw(h)

        self.tensors["word"], self.tensors["position"] = draw(self.vocab, h), draw(self.positions, h)
        for i in range(self.layers):
            norm(f"{i}.norm1")
            for part in "qkv":
                affine(f"{i}.{part}", h, h)
            affine(f"{i}.out", h, h)
            norm(f"{i}.norm2")
            affine(f"{i}.up", inner, h)
            affine(f"{i}.down", h, inner)
        norm("last")
        if self.bert:
            self.tensors["segment"] = draw(2, h)
            affine("pooler", h, h)
            affine("head.dense", h, h)
            norm("head.norm")
            self.tensors["head.bias"] = draw(self.vocab)
            affine("order", 2, h)


def write_tree(
    dense: Dense, root: Path, *, version: int, tp: int, pp: int = 1, unit: int = 8, **more: object
) -> Path:
    """The whole folder: tracker file, one file per rank. more: args besides the model's own."""
    rows = math.ceil(dense.vocab / (unit * tp)) * unit * tp
    for stage in range(pp):
        for rank in range(tp):
            content = {
                "iteration": 300,
                "model": _model(dense, version, rank, tp, rows, stage, pp),
                "optimizer": {"state": {0: {"step": 300, "exp_avg": torch.zeros(3)}}},
                "args": argparse.Namespace(
                    num_layers=dense.layers,
                    hidden_size=dense.hidden,
                    num_attention_heads=dense.heads,
                    max_position_embeddings=dense.positions,
                    padded_vocab_size=rows,
                    make_vocab_size_divisible_by=unit,
                    openai_gelu=True,
                    bias_gelu_fusion=False,
                    layernorm_epsilon=1e-5,
                    params_dtype=torch.float32,
                    **more,
                ),
            }
            if version:  # files of version 0 do not say so
                content["checkpoint_version"] = float(version)
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if pp > 1 else "")
            folder = root / "iter_0000300" / name
            folder.mkdir(parents=True)
            torch.save(content, folder / "model_optim_rng.pt")
    (root / "latest_checkpointed_iteration.txt").write_text("300")
    return root


def qkv_rows(version: int, heads: int, head_dim: int, rank: int, tp: int) -> list[tuple[str, int]]:
    """Of each row of a rank's query_key_value which of q, k and v it is from, and its row there."""
    mine = range(rank * heads // tp, (rank + 1) * heads // tp)
    if version == 0:
        return [(part, head * head_dim + d) for part in "qkv" for head in mine for d in range(head_dim)]
    if version == 1:
        return [(part, head * head_dim + d) for head in mine for d in range(head_dim) for part in "qkv"]
    return [(part, head * head_dim + d) for head in mine for part in "qkv" for d in range(head_dim)]


def _model(dense: Dense, version: int, rank: int, tp: int, rows: int, stage: int, pp: int) -> dict:
    t = dense.tensors
    stack, attention = ("encoder", "self_attention") if version > 2 else ("transformer", "attention")

    def vocabulary(whole: Tensor) -> Tensor:
        padded = torch.full((rows, *whole.shape[1:]), 7.0)  # Megatron's own padding is not zero either
        padded[: dense.vocab] = whole
        return padded[rank * rows // tp : (rank + 1) * rows // tp].clone()

    def columns(whole: Tensor) -> Tensor:  # the output dimension divided
        return whole[rank * len(whole) // tp : (rank + 1) * len(whole) // tp].clone()

    def rowwise(whole: Tensor) -> Tensor:  # the input dimension divided
        width = whole.shape[1]
        return whole[:, rank * width // tp : (rank + 1) * width // tp].clone()

    def qkv(layer: int, kind: str) -> Tensor:
        places = qkv_rows(version, dense.heads, dense.hidden // dense.heads, rank, tp)
        return torch.stack([t[f"{layer}.{part}.{kind}"][row] for part, row in places])

    body = {}
    own = dense.layers // pp
    for local in range(own):
        i, at = stage * own + local, f"layers.{local}"
        for kind in ("weight", "bias"):
            body[f"{at}.input_layernorm.{kind}"] = t[f"{i}.norm1.{kind}"]
            body[f"{at}.{attention}.query_key_value.{kind}"] = qkv(i, kind)
            body[f"{at}.post_attention_layernorm.{kind}"] = t[f"{i}.norm2.{kind}"]
            body[f"{at}.mlp.dense_h_to_4h.{kind}"] = columns(t[f"{i}.up.{kind}"])
        body[f"{at}.{attention}.dense.weight"] = rowwise(t[f"{i}.out.weight"])
        body[f"{at}.{attention}.dense.bias"] = t[f"{i}.out.bias"]
        body[f"{at}.mlp.dense_4h_to_h.weight"] = rowwise(t[f"{i}.down.weight"])
        body[f"{at}.mlp.dense_4h_to_h.bias"] = t[f"{i}.down.bias"]
    language_model: dict = {stack: body}
    model: dict = {"language_model": language_model}
    if stage == 0:
        language_model["embedding"] = {
            "word_embeddings": {"weight": vocabulary(t["word"])},
            "position_embeddings": {"weight": t["position"]},
        }
        if dense.bert:
            language_model["embedding"]["tokentype_embeddings"] = {"weight": t["segment"]}
    if stage == pp - 1:
        body["final_layernorm.weight"], body["final_layernorm.bias"] = t["last.weight"], t["last.bias"]
        if pp > 1:
            model["word_embeddings_for_head"] = {"weight": vocabulary(t["word"])}
        if dense.bert:
            language_model["pooler"] = {f"dense.{kind}": t[f"pooler.{kind}"] for kind in ("weight", "bias")}
            model["lm_head"] = {"bias": vocabulary(t["head.bias"])}
            for kind in ("weight", "bias"):
                model["lm_head"][f"dense.{kind}"] = t[f"head.dense.{kind}"]
                model["lm_head"][f"layernorm.{kind}"] = t[f"head.norm.{kind}"]
            model["binary_head"] = {kind: t[f"order.{kind}"] for kind in ("weight", "bias")}
    return model


def expected_parameters(dense: Dense) -> dict[str, Tensor]:
    """Our parameters of the dense model; rows of qkv are head by head, each q, k, v."""
    t = dense.tensors
    places = qkv_rows(2, dense.heads, dense.hidden // dense.heads, 0, 1)
    found = {"embedding.word.weight": t["word"], "embedding.position.weight": t["position"]}
    modules = {"final_norm": "last"}
    for i in range(dense.layers):
        modules |= {
            f"layers.{i}.attention_norm": f"{i}.norm1",
            f"layers.{i}.attention.projection": f"{i}.out",
            f"layers.{i}.mlp_norm": f"{i}.norm2",
            f"layers.{i}.mlp.expand": f"{i}.up",
            f"layers.{i}.mlp.contract": f"{i}.down",
        }
        for kind in ("weight", "bias"):
            rows = [t[f"{i}.{part}.{kind}"][row] for part, row in places]
            found[f"layers.{i}.attention.qkv.{kind}"] = torch.stack(rows)
    if dense.bert:
        modules |= {
            "pooler": "pooler",
            "lm_head.dense": "head.dense",
            "lm_head.norm": "head.norm",
            "order_head": "order",
        }
        found |= {"embedding.segment.weight": t["segment"], "lm_head.bias": t["head.bias"]}
    for ours, name in modules.items():
        for kind in ("weight", "bias"):
            found[f"{ours}.{kind}"] = t[f"{name}.{kind}"]
    return found


def hidden_states(dense: Dense, ids: Tensor, segments: Tensor | None = None) -> Tensor:
    """What the last LayerNorm gives, in float64: the textbook transformer with its norms in front."""
    t = {name: tensor.double() for name, tensor in dense.tensors.items()}

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * t[f"{name}.weight"] + t[f"{name}.bias"]

    def affine(x: Tensor, name: str) -> Tensor:
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    head_dim = dense.hidden // dense.heads
    x = t["word"][ids] + t["position"][: ids.shape[1]]
    if segments is not None:
        x = x + t["segment"][segments]
    for i in range(dense.layers):
        y = norm(x, f"{i}.norm1")
        q, k, v = (affine(y, f"{i}.{part}") for part in "qkv")
        heads = []
        for head in range(dense.heads):
            at = slice(head * head_dim, (head + 1) * head_dim)
            scores = q[..., at] @ k[..., at].mT / math.sqrt(head_dim)
            if not dense.bert:
                future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
                scores = scores.masked_fill(future, -math.inf)
            heads.append(scores.softmax(-1) @ v[..., at])
        x = x + affine(torch.cat(heads, -1), f"{i}.out")
        y = affine(norm(x, f"{i}.norm2"), f"{i}.up")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + affine(y, f"{i}.down")
    return norm(x, "last")

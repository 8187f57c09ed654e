"""Floating point operations of one training step by named formulas; a multiply and an add are two.

Model FLOPs are what the mathematics needs and never depend on how a run goes about it; hardware FLOPs are
what the devices execute, recomputation included. Both count matrix products only, attention over the whole
square of scores as the published formulas do, though half of it is masked, and the padded vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mlm.config.schema import ModelConfig, TrainConfig
from mlm.plan.parameters import ffn_hidden_size, padded_vocab_size

Recompute = Literal["none", "selective", "full"]
"""What the backward pass computes again: nothing, each layer's attention scores, or each layer."""

MODEL_FLOPS_FORMULA = "72 B s l h^2 (1 + s/6h + V/12lh)"
"""Narayanan et al. 2021 (arXiv 2104.04473, section 5.1), without recomputation; V padded."""

HARDWARE_FLOPS_FORMULAS: dict[Recompute, str] = {
    "none": MODEL_FLOPS_FORMULA,
    "selective": "72 B s l h^2 (1 + 2s/9h + V/12lh)",
    "full": "96 B s l h^2 (1 + s/6h + V/16lh)",
}
"""full: the F of the same section. selective: the products that run again are s/18h of the bracket.

Korthikanti et al. 2022 (arXiv 2205.05198, appendix) add s/6h for selective recomputation, three times what is
executed, so that hardware FLOPs by their formula are 1 to 3 % higher than ours.
"""


@dataclass(frozen=True)
class ForwardFlops:
    """One forward pass, by what recomputation treats alike."""

    layers: int
    """Products of all layers with weights, for which each layer's input is enough to run them again."""
    attention: int
    """Scores q k^T and values p v of all layers: what selective recomputation runs again."""
    output: int
    """What follows the layers and is never recomputed: the output layer, and heads."""


BERT_FLOPS_FORMULA = "72 B s l h^2 (1 + s/6h) + 6 B h (K(V + h) + h + 2)"
"""The same layers; K positions of a sample reach the output layer and the dense one before it; two heads."""


def flops_formula(config: TrainConfig) -> str:
    """How model FLOPs are counted, for people."""
    outputs = outputs_per_sample(config)
    return MODEL_FLOPS_FORMULA if outputs is None else f"{BERT_FLOPS_FORMULA}, K = {outputs}"


def outputs_per_sample(config: TrainConfig) -> int | None:
    """Positions of a sample whose logits training computes; None: all."""
    if config.finetune.task is not None:
        return 0  # a class, a score or two numbers a token: nothing beside the layers
    if config.objective.name != "masked_lm":
        return None
    return masked_places(config.model.seq_length, config.objective.mask_rate)


def masked_places(seq_length: int, mask_rate: float) -> int:
    """Positions of a sample that masked_lm can predict, used or not: the output layer computes no others.

    Of a sample, [CLS] and two [SEP] are no text.
    """
    return max(1, math.floor(mask_rate * (seq_length - 3) + 0.5))


def model_flops_per_step(model: ModelConfig, batch_size: int, outputs: int | None = None) -> int:
    """Operations the mathematics needs for batch_size samples: forward, and backward at twice forward.

    MODEL_FLOPS_FORMULA for ffn_hidden_size = 4h; another width replaces its 16 h^2 of 24. outputs: positions
    of a sample whose logits are computed; None: what the architecture's own objective has, all of a GPT-2's
    and masked_places at 15 % of a BERT's.
    """
    forward = forward_flops(model, batch_size, outputs)
    return 3 * (forward.layers + forward.attention + forward.output)


def hardware_flops_per_step(
    model: ModelConfig, batch_size: int, recompute: Recompute = "none", outputs: int | None = None
) -> int:
    """Operations the devices execute for batch_size samples: HARDWARE_FLOPS_FORMULAS[recompute].

    selective runs attention's two products forward once more, full the whole layers; the output layer is not
    recomputed. torch's checkpointing stops each recomputation early and so skips a layer's last product, some
    7 % of the whole that the published formula, and this one, count.
    """
    forward = forward_flops(model, batch_size, outputs)
    again = {
        "none": 0,
        "selective": forward.attention,
        "full": forward.attention + forward.layers,
    }
    return model_flops_per_step(model, batch_size, outputs) + again[recompute]


def forward_flops(model: ModelConfig, batch_size: int, outputs: int | None = None) -> ForwardFlops:
    """Operations of one forward pass over batch_size samples. Raises KeyError for an unknown architecture."""
    return _FORWARD[model.architecture](model, batch_size, outputs)


def _gpt2(model: ModelConfig, batch_size: int, outputs: int | None) -> ForwardFlops:
    h, s, tokens = model.hidden_size, model.seq_length, batch_size * model.seq_length
    qkv_and_projection = 2 * (3 * h * h) + 2 * h * h
    mlp = 2 * (2 * h * ffn_hidden_size(model))
    return ForwardFlops(
        layers=tokens * model.num_layers * (qkv_and_projection + mlp),
        attention=tokens * model.num_layers * 2 * (2 * s * h),
        output=batch_size * (s if outputs is None else outputs) * 2 * h * padded_vocab_size(model),
    )


def _bert(model: ModelConfig, batch_size: int, outputs: int | None) -> ForwardFlops:
    """The layers are GPT-2's; pooler and sentence order follow, and for each output a product of h^2."""
    h = model.hidden_size
    places = masked_places(model.seq_length, _MASK_RATE) if outputs is None else outputs
    layers = _gpt2(model, batch_size, places)
    heads = batch_size * (2 * h * h + 2 * 2 * h + places * 2 * h * h)
    return ForwardFlops(layers.layers, layers.attention, layers.output + heads)


_MASK_RATE = 0.15

_FORWARD: dict[str, Callable[[ModelConfig, int, int | None], ForwardFlops]] = {"gpt2": _gpt2, "bert": _bert}
"""model.architecture -> its forward pass."""

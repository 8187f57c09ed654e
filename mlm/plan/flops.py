"""Floating point operations of one training step by named formulas; a multiply and an add are two."""

from __future__ import annotations

from mlm.config.schema import ModelConfig
from mlm.plan.parameters import ffn_hidden_size, padded_vocab_size

MODEL_FLOPS_FORMULA = "72 B s l h^2 (1 + s/6h + V/12lh)"
"""Narayanan et al. 2021 (arXiv 2104.04473, section 5.1), without recomputation; V padded."""

RECOMPUTE_FLOPS_FORMULA = "96 B s l h^2 (1 + s/6h + V/16lh)"
"""The same section's F, in which every layer's forward pass runs twice."""


def model_flops_per_step(model: ModelConfig, batch_size: int) -> int:
    """Operations the mathematics needs for batch_size samples: forward, and backward at twice forward.

    MODEL_FLOPS_FORMULA for ffn_hidden_size = 4h; another width replaces its 16 h^2 of 24. Matrix products
    only, attention scores counted over the whole square as in the source, though half of it is masked.
    """
    layers, output = _forward(model, batch_size)
    return 3 * (layers + output)


def recompute_flops_per_step(model: ModelConfig, batch_size: int) -> int:
    """Operations the hardware executes when every layer's activations are recomputed in the backward pass.

    RECOMPUTE_FLOPS_FORMULA: layers four times forward, the output layer three times.
    """
    layers, output = _forward(model, batch_size)
    return 4 * layers + 3 * output


def _forward(model: ModelConfig, batch_size: int) -> tuple[int, int]:
    """Forward operations of all layers and of the output layer."""
    h, s = model.hidden_size, model.seq_length
    tokens = batch_size * s
    attention_products = 2 * (3 * h * h) + 2 * h * h
    scores_and_values = 2 * (2 * s * h)
    mlp = 2 * (2 * h * ffn_hidden_size(model))
    layers = tokens * model.num_layers * (attention_products + scores_and_values + mlp)
    return layers, tokens * 2 * h * padded_vocab_size(model)

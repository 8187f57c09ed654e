"""The table of models: the one place that maps a configuration's `architecture` to a builder."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from mlm.config.schema import ModelConfig
from mlm.models.gpt2 import Gpt2
from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import initialise
from mlm.parallel.rng import RngStreams


def _gpt2(config: ModelConfig, tp: Axis, rng: RngStreams, overlap: bool, dtype: torch.dtype) -> nn.Module:
    return Gpt2(
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        ffn_hidden_size=config.ffn_hidden_size or 4 * config.hidden_size,
        seq_length=config.seq_length,
        vocab_size=config.vocab_size,
        padded_vocab_size=config.padded_vocab_size or config.vocab_size,
        tie_embeddings=config.tie_embeddings,
        bias=config.bias,
        gelu=config.gelu.value,
        layernorm_eps=config.layernorm_eps,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        init_std=config.init_std,
        tp=tp,
        rng=rng,
        overlap=overlap,
        dtype=dtype,
    )


MODELS: dict[str, Callable[[ModelConfig, Axis, RngStreams, bool, torch.dtype], nn.Module]] = {"gpt2": _gpt2}


def build_model(
    config: ModelConfig,
    *,
    tp: Axis,
    rng: RngStreams,
    seed: int,
    overlap: bool = True,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """This rank's part of the configured model on `device`, initialised identically for every layout.

    Raises KeyError for an architecture that is not in the table (refused earlier by mlm.config.checks).
    """
    with torch.device(device):
        model = MODELS[config.architecture](config, tp, rng, overlap, dtype)
    initialise(model, seed, tp)
    return model

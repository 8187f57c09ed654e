"""The table of models: the one place that maps an architecture and an objective to a builder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from mlm.config.schema import ModelConfig
from mlm.models.bert import Bert, BertForPretraining
from mlm.models.bert_finetuning import BertForChoice, BertForClasses, BertForSpans
from mlm.models.design import Design
from mlm.models.gpt2 import Gpt2
from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import initialise
from mlm.parallel.rng import RngStreams

Builder = Callable[..., nn.Module]
"""Called with a Design, and as keywords with tp, rng, overlap and dtype."""

ENCODER = "encoder"
"""In place of an objective: the model without the heads that objectives add."""


MODELS: dict[str, dict[str, Builder]] = {
    "gpt2": {"next_token": Gpt2},
    "bert": {
        "masked_lm": BertForPretraining,
        ENCODER: Bert,
        "race": partial(BertForChoice, options=4),
        "mnli": partial(BertForClasses, classes=3),
        "qqp": partial(BertForClasses, classes=2),
        "squad_v1": BertForSpans,
        "squad_v2": BertForSpans,
    },
}
"""model.architecture -> objective.name -> the model for it; an architecture's own objective stands first."""


def build_model(
    config: ModelConfig,
    *,
    tp: Axis,
    rng: RngStreams,
    seed: int,
    objective: str | None = None,
    overlap: bool = True,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """This rank's part of the configured model on `device`, initialised identically for every layout.

    objective: what it is for, which decides its heads; None: the architecture's own. Raises KeyError for an
    architecture or objective that is not in the table (refused earlier by mlm.config.checks).
    """
    builders = MODELS[config.architecture]
    build = builders[objective or next(iter(builders))]
    with torch.device(device):
        model = build(design_of(config), tp=tp, rng=rng, overlap=overlap, dtype=dtype)
    initialise(model, seed, tp)
    return model


def design_of(config: ModelConfig) -> Design:
    """The configured shape, with the nulls of the schema filled."""
    return Design(
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        ffn_hidden_size=config.ffn_hidden_size or 4 * config.hidden_size,
        seq_length=config.seq_length,
        vocab_size=config.vocab_size,
        padded_vocab_size=config.padded_vocab_size or config.vocab_size,
        segments=config.segments,
        layernorm=config.layernorm.value,
        tie_embeddings=config.tie_embeddings,
        bias=config.bias,
        gelu=config.gelu.value,
        layernorm_eps=config.layernorm_eps,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        init_std=config.init_std,
    )

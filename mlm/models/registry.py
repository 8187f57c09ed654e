"""The table of models: the one place that maps an architecture and an objective to a builder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mlm.config.schema import ModelConfig
from mlm.models.bert import Bert, BertForPretraining
from mlm.models.bert_finetuning import BertForChoice, BertForClasses, BertForSpans
from mlm.models.gpt2 import Gpt2
from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import initialise
from mlm.parallel.rng import RngStreams

Builder = Callable[..., nn.Module]
"""Called with _shape's keywords, tp, rng, overlap and dtype."""

ENCODER = "encoder"
"""In place of an objective: the model without the heads that objectives add."""


def _gpt2(**shape: Any) -> nn.Module:
    for key in ("segments", "layernorm"):
        del shape[key]
    return Gpt2(**shape)


def _bert(model: type[Bert], **head: Any) -> Builder:
    """head: what the model's own head is made of, beside the shape."""

    def build(**shape: Any) -> nn.Module:
        # The decoder is the embedding table.
        del shape["tie_embeddings"]
        return model(**shape, **head)

    return build


MODELS: dict[str, dict[str, Builder]] = {
    "gpt2": {"next_token": _gpt2},
    "bert": {
        "masked_lm": _bert(BertForPretraining),
        ENCODER: _bert(Bert),
        "race": _bert(BertForChoice, options=4),
        "mnli": _bert(BertForClasses, classes=3),
        "qqp": _bert(BertForClasses, classes=2),
        "squad_v1": _bert(BertForSpans),
        "squad_v2": _bert(BertForSpans),
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
        model = build(**_shape(config), tp=tp, rng=rng, overlap=overlap, dtype=dtype)
    initialise(model, seed, tp)
    return model


def _shape(config: ModelConfig) -> dict[str, Any]:
    """The numbers that shape a model, with the nulls of the schema filled."""
    return {
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "num_heads": config.num_heads,
        "ffn_hidden_size": config.ffn_hidden_size or 4 * config.hidden_size,
        "seq_length": config.seq_length,
        "vocab_size": config.vocab_size,
        "padded_vocab_size": config.padded_vocab_size or config.vocab_size,
        "segments": config.segments,
        "layernorm": config.layernorm.value,
        "tie_embeddings": config.tie_embeddings,
        "bias": config.bias,
        "gelu": config.gelu.value,
        "layernorm_eps": config.layernorm_eps,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "init_std": config.init_std,
    }

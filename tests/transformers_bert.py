"""Our weights in the BERT of the transformers library, an implementation we did not write."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from mlm.config.schema import Gelu, LayerNormPlacement, ModelConfig


def as_transformers(config: ModelConfig, weights: dict[str, Tensor], model: str) -> Any:
    """The model of that name in eval mode with the full weights (tp=1) of our post-LayerNorm model.

    Its queries, keys and values are three matrices where our rows are one of [heads, 3, head_dim].
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own imports
        import transformers

    assert config.layernorm is LayerNormPlacement.post
    assert config.gelu is Gelu.erf
    theirs = getattr(transformers, model)(
        transformers.BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            intermediate_size=config.ffn_hidden_size or 4 * config.hidden_size,
            max_position_embeddings=config.seq_length,
            type_vocab_size=config.segments,
            layer_norm_eps=config.layernorm_eps,
        )
    )
    loaded = theirs.load_state_dict(_renamed(config, weights), strict=False)
    assert set(loaded.missing_keys) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    # One without a head for the order of segments has no pooler either.
    without = () if model == "BertForPreTraining" else ("bert.pooler.", "cls.seq_relationship.")
    assert not [name for name in loaded.unexpected_keys if not name.startswith(without)]
    theirs.tie_weights()
    return theirs.eval()


def _renamed(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    modules = {
        "embedding.norm": "bert.embeddings.LayerNorm",
        "pooler": "bert.pooler.dense",
        "lm_head.dense": "cls.predictions.transform.dense",
        "lm_head.norm": "cls.predictions.transform.LayerNorm",
        "order_head": "cls.seq_relationship",
    }
    state = {
        "bert.embeddings.word_embeddings.weight": weights["embedding.word.weight"][: config.vocab_size],
        "bert.embeddings.position_embeddings.weight": weights["embedding.position.weight"],
        "bert.embeddings.token_type_embeddings.weight": weights["embedding.segment.weight"],
        "cls.predictions.bias": weights["lm_head.bias"][: config.vocab_size],
    }
    for layer in range(config.num_layers):
        theirs = f"bert.encoder.layer.{layer}"
        modules[f"layers.{layer}.attention.projection"] = f"{theirs}.attention.output.dense"
        modules[f"layers.{layer}.attention_norm"] = f"{theirs}.attention.output.LayerNorm"
        modules[f"layers.{layer}.mlp.expand"] = f"{theirs}.intermediate.dense"
        modules[f"layers.{layer}.mlp.contract"] = f"{theirs}.output.dense"
        modules[f"layers.{layer}.mlp_norm"] = f"{theirs}.output.LayerNorm"
        for kind in ("weight", "bias"):
            packed = weights[f"layers.{layer}.attention.qkv.{kind}"].unflatten(0, (config.num_heads, 3, -1))
            for index, name in enumerate(("query", "key", "value")):
                state[f"{theirs}.attention.self.{name}.{kind}"] = packed[:, index].flatten(0, 1)
    for ours, name in modules.items():
        for kind in ("weight", "bias"):
            state[f"{name}.{kind}"] = weights[f"{ours}.{kind}"]
    return {name: value.detach().clone().contiguous() for name, value in state.items()}

"""Our weights in the GPT2LMHeadModel of the transformers library, an implementation we did not write."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from mlm.config.schema import Gelu, ModelConfig


def as_transformers(config: ModelConfig, weights: dict[str, Tensor]) -> Any:
    """A GPT2LMHeadModel in eval mode with the full weights (tp=1) of a tied model with biases.

    Its layers store [in, out] where ours store [out, in], and its qkv columns are ordered [3, heads,
    head_dim] where our rows are ordered [heads, 3, head_dim].
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own imports
        from transformers import GPT2Config, GPT2LMHeadModel

    assert config.tie_embeddings
    assert config.bias
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.seq_length,
            n_embd=config.hidden_size,
            n_layer=config.num_layers,
            n_head=config.num_heads,
            n_inner=config.ffn_hidden_size,
            activation_function="gelu_new" if config.gelu is Gelu.tanh else "gelu",
            layer_norm_epsilon=config.layernorm_eps,
            tie_word_embeddings=True,
            bos_token_id=None,  # GPT-2's 50,256 by default, which ends a text of `generate`
            eos_token_id=None,
        )
    )
    loaded = theirs.load_state_dict(_renamed(config, weights), strict=False)
    assert set(loaded.missing_keys) <= {"lm_head.weight"}
    assert not loaded.unexpected_keys
    theirs.tie_weights()
    return theirs.eval()


def _renamed(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    state = {
        "transformer.wte.weight": weights["embedding.word.weight"][: config.vocab_size],
        "transformer.wpe.weight": weights["embedding.position.weight"],
    }
    modules = {"final_norm": "transformer.ln_f"}
    for layer in range(config.num_layers):
        theirs = f"transformer.h.{layer}"
        modules[f"layers.{layer}.attention_norm"] = f"{theirs}.ln_1"
        modules[f"layers.{layer}.attention.qkv"] = f"{theirs}.attn.c_attn"
        modules[f"layers.{layer}.attention.projection"] = f"{theirs}.attn.c_proj"
        modules[f"layers.{layer}.mlp_norm"] = f"{theirs}.ln_2"
        modules[f"layers.{layer}.mlp.expand"] = f"{theirs}.mlp.c_fc"
        modules[f"layers.{layer}.mlp.contract"] = f"{theirs}.mlp.c_proj"
    for ours, name in modules.items():
        for kind in ("weight", "bias"):
            value = weights[f"{ours}.{kind}"]
            if ours.endswith("qkv"):
                value = value.unflatten(0, (config.num_heads, 3, -1)).transpose(0, 1).flatten(0, 2)
            state[f"{name}.{kind}"] = value.t() if value.dim() == 2 else value
    return {name: value.detach().clone().contiguous() for name, value in state.items()}

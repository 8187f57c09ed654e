"""Names of GPT-2's parameters in other programs' files."""

from __future__ import annotations

from mlm.models.names import Entry, Form, Table

HUGGING_FACE = Table(
    entries=(
        Entry("embedding.word.weight", ("wte.weight",), Form.VOCABULARY_ROWS),
        Entry("embedding.position.weight", ("wpe.weight",)),
        Entry("layers.{i}.attention_norm.weight", ("h.{i}.ln_1.weight",)),
        Entry("layers.{i}.attention_norm.bias", ("h.{i}.ln_1.bias",)),
        Entry("layers.{i}.attention.qkv.weight", ("h.{i}.attn.c_attn.weight",), Form.QKV_BLOCKS_TRANSPOSED),
        Entry("layers.{i}.attention.qkv.bias", ("h.{i}.attn.c_attn.bias",), Form.QKV_BLOCKS),
        Entry("layers.{i}.attention.projection.weight", ("h.{i}.attn.c_proj.weight",), Form.TRANSPOSED),
        Entry("layers.{i}.attention.projection.bias", ("h.{i}.attn.c_proj.bias",)),
        Entry("layers.{i}.mlp_norm.weight", ("h.{i}.ln_2.weight",)),
        Entry("layers.{i}.mlp_norm.bias", ("h.{i}.ln_2.bias",)),
        Entry("layers.{i}.mlp.expand.weight", ("h.{i}.mlp.c_fc.weight",), Form.TRANSPOSED),
        Entry("layers.{i}.mlp.expand.bias", ("h.{i}.mlp.c_fc.bias",)),
        Entry("layers.{i}.mlp.contract.weight", ("h.{i}.mlp.c_proj.weight",), Form.TRANSPOSED),
        Entry("layers.{i}.mlp.contract.bias", ("h.{i}.mlp.c_proj.bias",)),
        Entry("final_norm.weight", ("ln_f.weight",)),
        Entry("final_norm.bias", ("ln_f.bias",)),
        Entry("head.weight", ("lm_head.weight",), Form.VOCABULARY_ROWS),
    ),
    prefixes=("transformer.",),
    # The triangle of the causal mask, which older files hold once a layer.
    ignored=(r"h\.\d+\.attn\.(bias|masked_bias)",),
    copies={"lm_head.weight": "wte.weight"},
)

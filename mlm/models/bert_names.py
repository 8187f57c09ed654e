"""Names of BERT's parameters in other programs' files."""

from __future__ import annotations

from mlm.models.names import Entry, Form, Table

_QKV = tuple(f"encoder.layer.{{i}}.attention.self.{part}" for part in ("query", "key", "value"))

HUGGING_FACE = Table(
    entries=(
        Entry("embedding.word.weight", ("embeddings.word_embeddings.weight",), Form.VOCABULARY_ROWS),
        Entry("embedding.position.weight", ("embeddings.position_embeddings.weight",)),
        Entry("embedding.segment.weight", ("embeddings.token_type_embeddings.weight",)),
        Entry("embedding.norm.weight", ("embeddings.LayerNorm.weight",)),
        Entry("embedding.norm.bias", ("embeddings.LayerNorm.bias",)),
        Entry("layers.{i}.attention.qkv.weight", tuple(f"{n}.weight" for n in _QKV), Form.QKV_PARTS),
        Entry("layers.{i}.attention.qkv.bias", tuple(f"{n}.bias" for n in _QKV), Form.QKV_PARTS),
        Entry("layers.{i}.attention.projection.weight", ("encoder.layer.{i}.attention.output.dense.weight",)),
        Entry("layers.{i}.attention.projection.bias", ("encoder.layer.{i}.attention.output.dense.bias",)),
        Entry("layers.{i}.attention_norm.weight", ("encoder.layer.{i}.attention.output.LayerNorm.weight",)),
        Entry("layers.{i}.attention_norm.bias", ("encoder.layer.{i}.attention.output.LayerNorm.bias",)),
        Entry("layers.{i}.mlp.expand.weight", ("encoder.layer.{i}.intermediate.dense.weight",)),
        Entry("layers.{i}.mlp.expand.bias", ("encoder.layer.{i}.intermediate.dense.bias",)),
        Entry("layers.{i}.mlp.contract.weight", ("encoder.layer.{i}.output.dense.weight",)),
        Entry("layers.{i}.mlp.contract.bias", ("encoder.layer.{i}.output.dense.bias",)),
        Entry("layers.{i}.mlp_norm.weight", ("encoder.layer.{i}.output.LayerNorm.weight",)),
        Entry("layers.{i}.mlp_norm.bias", ("encoder.layer.{i}.output.LayerNorm.bias",)),
        Entry("pooler.weight", ("pooler.dense.weight",)),
        Entry("pooler.bias", ("pooler.dense.bias",)),
        Entry("lm_head.dense.weight", ("cls.predictions.transform.dense.weight",)),
        Entry("lm_head.dense.bias", ("cls.predictions.transform.dense.bias",)),
        Entry("lm_head.norm.weight", ("cls.predictions.transform.LayerNorm.weight",)),
        Entry("lm_head.norm.bias", ("cls.predictions.transform.LayerNorm.bias",)),
        Entry("lm_head.bias", ("cls.predictions.bias",), Form.VOCABULARY_ROWS),
        Entry("order_head.weight", ("cls.seq_relationship.weight",)),
        Entry("order_head.bias", ("cls.seq_relationship.bias",)),
    ),
    prefixes=("bert.",),
    # What LayerNorms were called in files that were made from TensorFlow's.
    renames={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    # The numbers 0 to seq_length - 1.
    ignored=(r"embeddings\.position_ids",),
    copies={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)

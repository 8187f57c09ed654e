"""Names of GPT's and BERT's parameters in Megatron-LM's checkpoints, in the spellings of its versions."""

from __future__ import annotations

from dataclasses import dataclass

from mlm.models.names import Entry, Form, Table


@dataclass(frozen=True)
class Spelling:
    """What one version of Megatron-LM calls things that another calls otherwise.

    stack: of the layers, transformer or encoder. attention: attention or self_attention. norms: endings of a
    layer's first and second LayerNorm and of the last one. head_norm: of the masked-token head.
    """

    stack: str
    attention: str
    norms: tuple[str, str, str] = ("input_layernorm", "post_attention_layernorm", "final_layernorm")
    head_norm: str = "layernorm"


OLD = Spelling("transformer", "attention")
NEW = Spelling("encoder", "self_attention")
NEW_NORMS = ("input_norm", "post_attention_norm", "final_norm")

EMBEDDING = "language_model.embedding"


def gpt_table(spelling: Spelling) -> Table:
    """Of a GPT; rows of query_key_value are taken to be [heads, 3, head_dim], as ours are."""
    return Table(
        entries=(
            *_body(spelling),
            Entry("head.weight", ("language_model.output_layer.weight",), Form.VOCABULARY_ROWS),
        ),
        ignored=_IGNORED,
        copies=_COPIES,
    )


def bert_table(spelling: Spelling) -> Table:
    """Of a BERT; its LayerNorms stand at the input of each sub-layer, as Megatron-LM has them alone."""
    norm = f"lm_head.{spelling.head_norm}"
    return Table(
        entries=(
            *_body(spelling),
            Entry("embedding.segment.weight", (f"{EMBEDDING}.tokentype_embeddings.weight",)),
            *_both("pooler", "language_model.pooler.dense"),
            *_both("lm_head.dense", "lm_head.dense"),
            *_both("lm_head.norm", norm),
            Entry("lm_head.bias", ("lm_head.bias",), Form.VOCABULARY_ROWS),
            *_both("order_head", "binary_head"),
        ),
        ignored=_IGNORED,
        copies=_COPIES,
    )


_IGNORED = (r".*\._extra_state",)
# The last stage of a pipeline has the embedding table once more, for the logits.
_COPIES = {"word_embeddings_for_head.weight": f"{EMBEDDING}.word_embeddings.weight"}


def _body(spelling: Spelling) -> tuple[Entry, ...]:
    stack = f"language_model.{spelling.stack}"
    layer = f"{stack}.layers.{{i}}"
    first, second, last = spelling.norms
    return (
        Entry("embedding.word.weight", (f"{EMBEDDING}.word_embeddings.weight",), Form.VOCABULARY_ROWS),
        Entry("embedding.position.weight", (f"{EMBEDDING}.position_embeddings.weight",)),
        *_both("layers.{i}.attention_norm", f"{layer}.{first}"),
        *_both("layers.{i}.attention.qkv", f"{layer}.{spelling.attention}.query_key_value"),
        *_both("layers.{i}.attention.projection", f"{layer}.{spelling.attention}.dense"),
        *_both("layers.{i}.mlp_norm", f"{layer}.{second}"),
        *_both("layers.{i}.mlp.expand", f"{layer}.mlp.dense_h_to_4h"),
        *_both("layers.{i}.mlp.contract", f"{layer}.mlp.dense_4h_to_h"),
        *_both("final_norm", f"{stack}.{last}"),
    )


def _both(ours: str, theirs: str) -> tuple[Entry, Entry]:
    return Entry(f"{ours}.weight", (f"{theirs}.weight",)), Entry(f"{ours}.bias", (f"{theirs}.bias",))

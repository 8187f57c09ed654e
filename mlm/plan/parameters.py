"""Exact parameter counts, for the whole model and for one tensor-parallel rank."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from mlm.config.schema import ModelConfig


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by kind of tensor; `total` is their sum."""

    token_embedding: int
    """[V/tp, h]; with tied embeddings it is the output layer too."""
    position_embedding: int
    """[s, h], replicated; with segments, and their table's [segments, h]."""
    attention: int
    """All layers: QKV by columns (whole heads), output projection by rows; its bias is replicated."""
    mlp: int
    """All layers: first matrix by columns, second by rows; the second's bias is replicated."""
    layernorm: int
    """Two per layer and one after the last or, post, after the embeddings; replicated."""
    output_layer: int
    """[V/tp, h] of an untied head, which has no bias; 0 when embeddings are tied."""
    heads: int = 0
    """What BERT has on top: the pooler, the masked-LM head (its bias [V/tp]) and the sentence-order head, or
    those of a fine-tuning."""

    @property
    def total(self) -> int:
        return sum(astuple(self))


TASK_HEADS: dict[str, tuple[int, bool]] = {
    "race": (1, True),
    "mnli": (3, True),
    "qqp": (2, True),
    "squad_v1": (2, False),
    "squad_v2": (2, False),
}
"""finetune.task -> (outputs of its head, whether they are those of the pooler)."""


def count_parameters(model: ModelConfig, tp: int = 1, task: str | None = None) -> ParameterCount:
    """What one of tp ranks holds, by the padded vocabulary; at tp=1 that is the whole model.

    Whole GPT-2 with biases and tied embeddings: l(12h^2 + 13h) + Vh + sh + 2h. BERT, in either form of its
    LayerNorms, adds two segments, 2h; the pooler, h^2 + h; the masked-LM head, h^2 + 3h + V; and the
    sentence-order head, 2h + 2. In their place stand, when a task is fine-tuned, its n outputs, n(h + 1), and
    the pooler if they need it. tp has to divide the heads, ffn_hidden_size and padded_vocab_size
    (mlm.config.checks says so to the user).
    """
    return _count(model, padded_vocab_size(model), tp, task)


def count_real_parameters(model: ModelConfig, task: str | None = None) -> ParameterCount:
    """The whole model by the tokens that exist, which is how released models are counted."""
    return _count(model, model.vocab_size, 1, task)


def padded_vocab_size(model: ModelConfig) -> int:
    """Rows of the embedding table, with the null of the schema filled."""
    return model.vocab_size if model.padded_vocab_size is None else model.padded_vocab_size


def ffn_hidden_size(model: ModelConfig) -> int:
    """Width inside the MLP, with the null of the schema filled."""
    return 4 * model.hidden_size if model.ffn_hidden_size is None else model.ffn_hidden_size


def _count(model: ModelConfig, vocab: int, tp: int, task: str | None) -> ParameterCount:
    h, layers, ffn, bias = model.hidden_size, model.num_layers, ffn_hidden_size(model), int(model.bias)
    if model.num_heads % tp or h % model.num_heads or ffn % tp or vocab % tp:
        raise ValueError(f"tp={tp} does not divide heads={model.num_heads}, ffn={ffn} or vocabulary={vocab}")
    qkv = 3 * h * h // tp + bias * 3 * h // tp
    projection = h * h // tp + bias * h
    mlp_in = h * ffn // tp + bias * ffn // tp
    mlp_out = ffn * h // tp + bias * h
    return ParameterCount(
        token_embedding=vocab // tp * h,
        position_embedding=(model.seq_length + model.segments) * h,
        attention=layers * (qkv + projection),
        mlp=layers * (mlp_in + mlp_out),
        layernorm=(2 * layers + 1) * (h + bias * h),
        output_layer=0 if model.tie_embeddings else vocab // tp * h,
        heads=_bert_heads(h, vocab // tp, task) if model.architecture == "bert" else 0,
    )


def _bert_heads(h: int, vocab: int, task: str | None) -> int:
    """Their linear layers and the LayerNorm in the masked-LM head have biases in every BERT."""
    pooler, masked_lm, order = h * h + h, h * h + h + 2 * h + vocab, 2 * h + 2
    if task is not None:
        outputs, pooled = TASK_HEADS[task]
        return pooled * pooler + outputs * (h + 1)
    return pooler + masked_lm + order

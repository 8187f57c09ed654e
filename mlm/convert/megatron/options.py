"""Megatron-LM's options (args) and ModelConfig, each said in the other's words. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlm.config.schema import Gelu, LayerNormPlacement, ModelConfig
from mlm.convert.source import FoundTokenizer, Reading
from mlm.errors import Problem

DIVISIBLE_BY = 128
"""Megatron-LM pads the vocabulary to a multiple of this times tp, unless --make-vocab-size-divisible-by."""
KNOWN_VOCABULARIES = {"GPT2BPETokenizer": 50257, "BertWordPieceLowerCase": 30522, "BertWordPieceCase": 28996}
"""By tokenizer_type: tokens of the vocabulary that each is made for, taken only where the rows fit it."""

_UNLIKE: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "swiglu": ((None, False), "gated MLPs"),
    "squared_relu": ((None, False), "another activation"),
    "add_bias_linear": ((None, True), "linear layers without biases beside LayerNorms with them"),
    "normalization": ((None, "LayerNorm"), "another norm"),
    "apply_layernorm_1p": ((None, False), "LayerNorm weights stored less 1"),
    "position_embedding_type": ((None, "learned_absolute"), "other positions"),
    "use_rotary_position_embeddings": ((None, False), "other positions"),
    "apply_residual_connection_post_layernorm": ((None, False), "residuals taken behind the LayerNorm"),
    "group_query_attention": ((None, False), "keys and values shared by several heads"),
    "num_experts": ((None,), "experts"),
}
"""Options that make another model than ours: values that do not, and what the others mean."""
_MIXED = (
    "it was trained with bias_gelu_fusion: the tanh form of GELU in its layers and the erf form in its "
    "masked-token head; mlm has one form for both, tanh, which differs from erf by up to 5e-4"
)


@dataclass(frozen=True)
class Shapes:
    """What the tensors themselves say. rows: of the embedding table with its padding; segments: of its table.

    bert: whether there are segments, a pooler or a masked-token head.
    """

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    positions: int
    rows: int
    bert: bool
    segments: int
    tied: bool
    tp: int
    pp: int


@dataclass
class Described:
    """A model as options and tensors describe it.

    problems: what they leave open or contradict. cautions: what is read and will not be quite the same.
    """

    model: ModelConfig
    tokenizer: FoundTokenizer | None
    problems: list[Problem] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)


def describe(path: Path, options: Mapping[str, Any], shapes: Shapes, reading: Reading) -> Described:
    """The model of a checkpoint, named after its folder. Shapes decide, options must agree with them."""
    where, problems = str(path), list[Problem]()
    for key, found in (
        ("num_layers", shapes.num_layers),
        ("hidden_size", shapes.hidden_size),
        ("ffn_hidden_size", shapes.ffn_hidden_size),
        ("max_position_embeddings", shapes.positions),
        ("padded_vocab_size", shapes.rows),
        ("tensor_model_parallel_size", shapes.tp),
        ("model_parallel_size", shapes.tp),
        ("pipeline_model_parallel_size", shapes.pp),
    ):
        said = options.get(key)
        if isinstance(said, int) and said != found:
            wrong = f"says {key}={said} in its args and holds tensors of {key}={found}"
            problems.append(Problem(where, wrong, "use a whole checkpoint, all of one run"))
    for key, (like, meaning) in _UNLIKE.items():
        if key in options and options[key] not in like:
            wrong = f"was made with {key}={options[key]}, {meaning}, which is not built here"
            problems.append(Problem(where, wrong, f"it needs {key}={like[-1]}"))
    heads = _heads(where, options, shapes, reading, problems)
    vocab_size = _vocabulary(where, options, shapes, reading, problems)
    model = ModelConfig(
        name=_name(path),
        architecture="bert" if shapes.bert else "gpt2",
        num_layers=shapes.num_layers,
        hidden_size=shapes.hidden_size,
        num_heads=heads,
        ffn_hidden_size=shapes.ffn_hidden_size,
        seq_length=shapes.positions,
        vocab_size=vocab_size,
        # A BERT without the table lacks a tensor, which is named when names are matched.
        segments=(shapes.segments or 2) if shapes.bert else 0,
        layernorm=LayerNormPlacement.pre,
        tie_embeddings=shapes.tied,
        gelu=_gelu(options, shapes.bert),
        layernorm_eps=float(options.get("layernorm_epsilon", 1e-5)),
        dropout=float(options.get("hidden_dropout", 0.1)),
        attention_dropout=float(options.get("attention_dropout", 0.1)),
        init_std=float(options.get("init_method_std", 0.02)),
    )
    cautions = [_MIXED] if shapes.bert and options.get("bias_gelu_fusion") else []
    return Described(model, _tokenizer(options, model), problems, cautions)


def _name(path: Path) -> str:
    """Of the folder that a person named: not mp_rank_00 or its file."""
    place = path.absolute()
    while place.name.startswith(("mp_rank_", "iter_", "release", "model_", "latest_")) and place.parent.name:
        place = place.parent
    return place.name


def _heads(
    where: str, options: Mapping[str, Any], shapes: Shapes, reading: Reading, problems: list[Problem]
) -> int:
    said, hidden = options.get("num_attention_heads"), shapes.hidden_size
    heads = said if isinstance(said, int) else reading.num_heads
    if heads is None:
        wrong = "does not say how many attention heads the model has, which its tensors do not show"
        usual = f"; {hidden // 64} of 64 are usual for hidden_size={hidden}" if hidden % 64 == 0 else ""
        problems.append(Problem(where, wrong, f"give the number (--heads N, model.num_heads=N){usual}"))
        return 1
    if reading.num_heads not in (None, heads):
        wrong = f"has {heads} attention heads, not {reading.num_heads}"
        problems.append(Problem(where, wrong, f"use {heads}"))
    per_head = options.get("kv_channels")
    if heads < 1 or hidden % heads:
        wrong = f"cannot have {heads} attention heads at hidden_size={hidden}"
        problems.append(Problem(where, wrong, "give a number that divides it"))
        return 1
    if heads % shapes.tp:
        wrong = f"cannot have {heads} attention heads on {shapes.tp} ranks"
        problems.append(Problem(where, wrong, "give a multiple of the ranks"))
    if isinstance(per_head, int) and per_head * heads != hidden:
        wrong = f"has heads of {per_head}, {heads} of which are not its hidden_size={hidden}"
        problems.append(Problem(where, wrong, "such models have no place in mlm"))
    return heads


def _vocabulary(
    where: str, options: Mapping[str, Any], shapes: Shapes, reading: Reading, problems: list[Problem]
) -> int:
    """Real tokens: as the args say, as given, or of a known tokenizer that pads to just these rows."""
    said = options.get("vocab_size")
    if isinstance(said, int) and 0 < said <= shapes.rows:
        if reading.vocab_size not in (None, said):
            wrong = f"has a vocabulary of {said} tokens, not {reading.vocab_size}"
            problems.append(Problem(where, wrong, f"use {said}"))
        return said
    if reading.vocab_size is not None:
        if not 1 <= reading.vocab_size <= shapes.rows:
            wrong = f"has {shapes.rows} rows of tokens, so no vocabulary of {reading.vocab_size}"
            problems.append(Problem(where, wrong, f"give a number up to {shapes.rows}"))
        return min(reading.vocab_size, shapes.rows)
    known = KNOWN_VOCABULARIES.get(str(options.get("tokenizer_type")))
    unit = options.get("make_vocab_size_divisible_by", DIVISIBLE_BY)
    if known is not None and isinstance(unit, int) and padded(known, unit, shapes.tp) == shapes.rows:
        return known
    usual = [
        f"{size} for {name}"
        for name, size in (("GPT-2's", 50257), ("BERT's uncased", 30522))
        if 0 <= shapes.rows - size < DIVISIBLE_BY * shapes.tp
    ]
    wrong = f"has {shapes.rows} rows of tokens, padding included, and does not say how many are real"
    remedy = "give the size of the tokenizer's vocabulary (--vocab-size N, model.vocab_size=N)"
    problems.append(Problem(where, wrong, remedy + (f"; {usual[0]} tokenizer" if usual else "")))
    return shapes.rows


def padded(vocab_size: int, unit: int, tp: int) -> int:
    """Rows that Megatron-LM makes of a vocabulary: the next multiple of unit * tp."""
    return -(-vocab_size // (unit * tp)) * unit * tp


def _gelu(options: Mapping[str, Any], bert: bool) -> Gelu:
    """Fusing bias and GELU brought the tanh form along; early GPT-2 checkpoints, without args, have it."""
    if options.get("bias_gelu_fusion") or options.get("openai_gelu"):
        return Gelu.tanh
    silent = "bias_gelu_fusion" not in options and "openai_gelu" not in options
    return Gelu.tanh if silent and not bert else Gelu.erf


def _tokenizer(options: Mapping[str, Any], model: ModelConfig) -> FoundTokenizer | None:
    """The shipped one where type and size leave no doubt; paths in args are those of another machine."""
    kind = options.get("tokenizer_type")
    if model.architecture == "gpt2" and model.vocab_size == 50257 and kind in (None, "GPT2BPETokenizer"):
        return FoundTokenizer("gpt2", None)
    if (
        model.vocab_size == 30522
        and kind in (None, "BertWordPieceLowerCase")
        and model.architecture == "bert"
    ):
        return FoundTokenizer("wordpiece", None)
    return None


def options_of(
    model: ModelConfig, *, tp: int, rows: int, dtype: object, tokenizer: str | None
) -> dict[str, Any]:
    """The args that Megatron-LM's loader compares with its own, and those that shape the model.

    rows: of the embedding table, padding included. tokenizer: its tokenizer_type, None: it has none.
    """
    bert = model.architecture == "bert"
    tanh = model.gelu is Gelu.tanh
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_hidden_size or 4 * model.hidden_size,
        "num_attention_heads": model.num_heads,
        "kv_channels": model.hidden_size // model.num_heads,
        "seq_length": model.seq_length,
        "max_position_embeddings": model.seq_length,
        "add_position_embedding": True,
        "position_embedding_type": "learned_absolute",
        "vocab_size": model.vocab_size,
        "padded_vocab_size": rows,
        "make_vocab_size_divisible_by": DIVISIBLE_BY,
        "untie_embeddings_and_output_weights": not (bert or model.tie_embeddings),
        # Unfused, the choice of form holds for BERT's head too.
        "openai_gelu": tanh,
        "bias_gelu_fusion": False,
        "onnx_safe": False,
        "swiglu": False,
        "add_bias_linear": True,
        "normalization": "LayerNorm",
        "apply_residual_connection_post_layernorm": False,
        "layernorm_epsilon": model.layernorm_eps,
        "hidden_dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "init_method_std": model.init_std,
        "bert_binary_head": bert,
        "tensor_model_parallel_size": tp,
        "model_parallel_size": tp,
        "pipeline_model_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None,
        "data_parallel_random_init": False,
        "world_size": tp,
        "consumed_train_samples": 0,
        "consumed_valid_samples": 0,
        "params_dtype": dtype,
        "tokenizer_type": tokenizer,
    }

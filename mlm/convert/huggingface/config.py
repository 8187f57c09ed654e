"""config.json and ModelConfig, each said in the other's words; what cannot be said is refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm.config.schema import Gelu, LayerNormPlacement, ModelConfig
from mlm.errors import ConfigError, Problem

if TYPE_CHECKING:
    import torch

TITLES = {"gpt2": "Hugging Face GPT-2", "bert": "Hugging Face BERT"}
"""By our architecture, which is their model_type as well."""
GELUS = {"gelu_new": Gelu.tanh, "gelu_pytorch_tanh": Gelu.tanh, "gelu": Gelu.erf}
_ACTIVATION = {Gelu.tanh: "gelu_new", Gelu.erf: "gelu"}


def _gpt2(read: Reader) -> ModelConfig:
    read.only("scale_attn_weights", True, "attention scores that are not divided by sqrt(head_dim)")
    read.only("scale_attn_by_inverse_layer_idx", False, "attention scores divided by the layer's number")
    read.only("add_cross_attention", False, "attention to an encoder")
    read.only("pruned_heads", {}, "layers with fewer heads")
    hidden, embedding_dropout = read.number("n_embd", 768), read.rate("embd_pdrop", 0.1)
    dropout = read.rate("resid_pdrop", 0.1)
    if embedding_dropout != dropout:
        wrong = (
            f"differs from resid_pdrop={dropout:g}, and mlm has one rate for both (it acts in training alone)"
        )
        read.refuse(f"embd_pdrop={embedding_dropout:g}", wrong, "write the same rate in config.json")
    inner = read.given.get("n_inner")
    return ModelConfig(
        name=read.name,
        architecture="gpt2",
        num_layers=read.number("n_layer", 12),
        hidden_size=hidden,
        num_heads=read.number("n_head", 12),
        ffn_hidden_size=None if inner is None else read.number("n_inner", 4 * hidden),
        seq_length=read.number("n_positions", read.given.get("n_ctx", 1024)),
        vocab_size=read.number("vocab_size", 50257),
        tie_embeddings=bool(read.given.get("tie_word_embeddings", True)),
        gelu=read.gelu("activation_function", "gelu_new"),
        layernorm_eps=read.rate("layer_norm_epsilon", 1e-5),
        dropout=dropout,
        attention_dropout=read.rate("attn_pdrop", 0.1),
        init_std=read.rate("initializer_range", 0.02),
    )


def _bert(read: Reader) -> ModelConfig:
    read.only("position_embedding_type", "absolute", "positions that are no table")
    read.only("is_decoder", False, "attention to the left alone")
    read.only("add_cross_attention", False, "attention to an encoder")
    read.only("pruned_heads", {}, "layers with fewer heads")
    hidden = read.number("hidden_size", 768)
    return ModelConfig(
        name=read.name,
        architecture="bert",
        num_layers=read.number("num_hidden_layers", 12),
        hidden_size=hidden,
        num_heads=read.number("num_attention_heads", 12),
        ffn_hidden_size=read.number("intermediate_size", 3072),
        seq_length=read.number("max_position_embeddings", 512),
        vocab_size=read.number("vocab_size", 30522),
        segments=read.number("type_vocab_size", 2),
        layernorm=LayerNormPlacement.post,
        gelu=read.gelu("hidden_act", "gelu"),
        layernorm_eps=read.rate("layer_norm_eps", 1e-12),
        dropout=read.rate("hidden_dropout_prob", 0.1),
        attention_dropout=read.rate("attention_probs_dropout_prob", 0.1),
        init_std=read.rate("initializer_range", 0.02),
    )


READERS: dict[str, Callable[[Reader], ModelConfig]] = {"gpt2": _gpt2, "bert": _bert}


def model_of(content: Mapping[str, Any], folder: Path) -> ModelConfig:
    """The model that a config.json describes, defaults being those of transformers; named after its folder.

    Raises ConfigError with all that mlm has no like for.
    """
    where = folder / "config.json"
    kind = content.get("model_type")
    if kind not in READERS:
        known = " and ".join(READERS)
        raise ConfigError(Problem(f"{where}: model_type={kind}", "is not built here", f"known are {known}"))
    read = Reader(where, content, folder.absolute().name)
    model = READERS[kind](read)
    if not read.problems and model.hidden_size % model.num_heads:
        read.refuse(
            f"hidden size {model.hidden_size}",
            f"is not a multiple of {model.num_heads} heads",
            "get the file again",
        )
    if read.problems:
        raise ConfigError(read.problems)
    return model


class Reader:
    """Values of a config.json; what is wrong with them is collected in problems."""

    def __init__(self, where: Path, given: Mapping[str, Any], name: str):
        self.where, self.given, self.name = where, given, name
        self.problems: list[Problem] = []

    def number(self, key: str, default: int) -> int:
        """A positive whole number."""
        value = self.given.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(f"{key}={value}", "is no positive whole number", "get the file again")
            return 1
        return value

    def rate(self, key: str, default: float) -> float:
        """A number that is not negative."""
        value = self.given.get(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
            self.refuse(f"{key}={value}", "is no number from 0 on", "get the file again")
            return default
        return float(value)

    def gelu(self, key: str, default: str) -> Gelu:
        """The form of the GELU; other activations are refused."""
        value = self.given.get(key, default)
        if value not in GELUS:
            self.refuse(
                f"{key}={value}", "is no GELU, which is all that mlm has", f"known are {', '.join(GELUS)}"
            )
            return Gelu.tanh
        return GELUS[value]

    def only(self, key: str, value: Any, meaning: str) -> None:
        """Refuse a key that is there with another value."""
        found = self.given.get(key, value)
        if found != value and not (found is None and not value):
            self.refuse(f"{key}={found}", f"means {meaning}, which is not built here", f"needs {key}={value}")

    def refuse(self, what: str, wrong: str, remedy: str) -> None:
        self.problems.append(Problem(f"{self.where}: {what}", wrong, remedy))


def unsayable(model: ModelConfig) -> list[Problem]:
    """What of a model the other side has no word for."""
    title, found = TITLES.get(model.architecture), []
    if title is None:
        return [Problem(f"model.architecture={model.architecture}", "has no class there", "it stays here")]
    if not model.bias:
        remedy = "train with model.bias=true what is to go there"
        found.append(Problem("model.bias=false", f"cannot be said: {title} has biases everywhere", remedy))
    if model.architecture == "bert" and model.layernorm is LayerNormPlacement.pre:
        wrong = "has no class there: theirs has its LayerNorms after the residual additions"
        remedy = "export a model of model.layernorm=post; mlm-convert consolidate writes the tensors alone"
        found.append(Problem("model.layernorm=pre", wrong, remedy))
    return found


def config_of(
    model: ModelConfig, dtype: torch.dtype, *, has_heads: bool, special: Mapping[str, int]
) -> tuple[dict[str, Any], str]:
    """The config.json of a model, and its class. special: ids of the tokenizer's control tokens."""
    content, model_class = WRITERS[model.architecture](model, has_heads)
    ids = {f"{key}_token_id": special[of] for key, of in (("eos", "eod"), ("pad", "pad")) if of in special}
    if model.architecture == "gpt2" and "eod" in special:
        ids["bos_token_id"] = special.get("bos", special["eod"])
    about = {"architectures": [model_class], "model_type": model.architecture}
    dtype_name = str(dtype).removeprefix("torch.")
    return {**about, **content, **ids, "torch_dtype": dtype_name}, model_class


def _write_gpt2(model: ModelConfig, has_heads: bool) -> tuple[dict[str, Any], str]:
    content = {
        "activation_function": _ACTIVATION[model.gelu],
        "attn_pdrop": model.attention_dropout,
        "embd_pdrop": model.dropout,
        "initializer_range": model.init_std,
        "layer_norm_epsilon": model.layernorm_eps,
        "n_embd": model.hidden_size,
        "n_head": model.num_heads,
        "n_inner": model.ffn_hidden_size if model.ffn_hidden_size != 4 * model.hidden_size else None,
        "n_layer": model.num_layers,
        "n_positions": model.seq_length,
        "resid_pdrop": model.dropout,
        "tie_word_embeddings": model.tie_embeddings,
        "vocab_size": model.vocab_size,
    }
    return content, "GPT2LMHeadModel"


def _write_bert(model: ModelConfig, has_heads: bool) -> tuple[dict[str, Any], str]:
    content = {
        "attention_probs_dropout_prob": model.attention_dropout,
        "hidden_act": _ACTIVATION[model.gelu],
        "hidden_dropout_prob": model.dropout,
        "hidden_size": model.hidden_size,
        "initializer_range": model.init_std,
        "intermediate_size": model.ffn_hidden_size or 4 * model.hidden_size,
        "layer_norm_eps": model.layernorm_eps,
        "max_position_embeddings": model.seq_length,
        "num_attention_heads": model.num_heads,
        "num_hidden_layers": model.num_layers,
        "type_vocab_size": model.segments,
        "vocab_size": model.vocab_size,
    }
    return content, "BertForPreTraining" if has_heads else "BertModel"


WRITERS: dict[str, Callable[[ModelConfig, bool], tuple[dict[str, Any], str]]] = {
    "gpt2": _write_gpt2,
    "bert": _write_bert,
}

"""What is trained: the shape of the transformer, and for what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Gelu(Enum):
    """Form of the GELU: GPT-2 was trained with the tanh approximation, BERT and nanoGPT with erf."""

    tanh = "tanh"
    erf = "erf"


class LayerNormPlacement(Enum):
    """Where a layer's LayerNorms stand: at the input of each sub-layer, or after its residual addition."""

    pre = "pre"
    post = "post"


@dataclass(kw_only=True)
class ModelConfig:
    """Shape of the transformer; the numbers alone determine the parameter count."""

    name: str
    """Name of the configuration, used in the run directory's name."""
    architecture: str = "gpt2"
    """Row of the table of models (mlm.models.registry)."""
    num_layers: int
    """Transformer layers N."""
    hidden_size: int
    """Width of the residual stream h."""
    num_heads: int
    """Attention heads; split over tp (section 3: whole heads per rank)."""
    ffn_hidden_size: int | None = None
    """Width inside the MLP; null means 4 x hidden_size."""
    seq_length: int
    """Tokens per sample, and rows of the position table."""
    vocab_size: int
    """Tokens that exist: what the loss is normalised over and what is ever generated."""
    padded_vocab_size: int | None = None
    """Rows of the embedding table, a multiple of tp (the paper: 51,200 for 50,257); null: vocab_size."""
    tie_embeddings: bool = True
    """Share the embedding table with the output layer (section 3)."""
    bias: bool = True
    """Biases on linear layers and LayerNorms."""
    gelu: Gelu = Gelu.tanh
    """tanh or erf."""
    layernorm: LayerNormPlacement = LayerNormPlacement.pre
    """pre: at the input of each sub-layer; post: after its residual addition (bert; section 5.3)."""
    segments: int = 0
    """Rows of the table that tells apart the texts of a pair; 2 for bert, 0 for none."""
    layernorm_eps: float = 1e-5
    """Added to the variance in LayerNorm."""
    dropout: float = 0.1
    """On embeddings and before each residual addition (section 4.2)."""
    attention_dropout: float = 0.1
    """On attention probabilities (section 4.2)."""
    init_std: float = 0.02
    """Standard deviation of weights; before a residual addition it is divided by sqrt(2N) (section 4.2)."""


@dataclass(kw_only=True)
class ObjectiveConfig:
    """What the model is trained to do."""

    name: str = "next_token"
    """next_token (gpt2), or masked_lm: BERT's masked tokens and the order of two segments (section 4.3)."""
    mask_rate: float = 0.15
    """Share of a sample's tokens that masked_lm predicts."""
    max_ngram: int = 3
    """Longest run of whole words masked at once: n up to this, drawn in proportion to 1/n (section 4.3)."""
    mask_share: float = 0.8
    """Of the predicted tokens, the share that [MASK] stands in for."""
    random_share: float = 0.1
    """The share replaced by a random token; the others stay as they are."""

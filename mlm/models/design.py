"""What shapes a transformer, the same for every part of it: numbers and choices, no layout."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Design:
    """Numbers and choices of a model, with nothing left open; meanings as in mlm.config.schema.ModelConfig.

    gelu: tanh or erf. layernorm: pre or post. tie_embeddings: of GPT-2; segments: of BERT, 0 elsewhere.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    ffn_hidden_size: int
    seq_length: int
    vocab_size: int
    padded_vocab_size: int
    segments: int
    layernorm: str
    tie_embeddings: bool
    bias: bool
    gelu: str
    layernorm_eps: float
    dropout: float
    attention_dropout: float
    init_std: float

    @property
    def projection_init_std(self) -> float:
        """Standard deviation of weights whose product is added to the residual stream (section 4.2).

        Each layer adds two terms to it; without the factor its variance would grow with depth.
        """
        return self.init_std / math.sqrt(2 * self.num_layers)

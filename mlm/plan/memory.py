"""What one rank holds from the first step to the last: weights, gradients and optimizer state."""

from __future__ import annotations

from dataclasses import dataclass

from mlm.config.schema import ModelConfig
from mlm.plan.parameters import count_parameters

ACTIVATIONS_NOTE = "activations come on top"
"""To be printed beside every figure of this file: it counts nothing that lives shorter than a step."""


@dataclass(frozen=True)
class StaticMemory:
    """Bytes of one rank, by what they hold."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    """AdamW's two moments."""

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes


def static_memory(model: ModelConfig, tp: int, task: str | None = None) -> StaticMemory:
    """Static bytes of one of tp ranks: 16 per parameter, in fp32, bf16 and fp16 alike.

    bf16 and fp16 are autocast over fp32 parameters: weights and gradients stay fp32 (4 + 4), AdamW keeps two
    fp32 moments (8). The narrow copies that autocast makes are activations. task: as in count_parameters.
    """
    parameters = count_parameters(model, tp, task).total
    return StaticMemory(4 * parameters, 4 * parameters, 8 * parameters)


def cache_bytes(model: ModelConfig, tp: int, *, rows: int, tokens: int, itemsize: int = 4) -> int:
    """Keys and values that one of tp ranks keeps of `rows` texts of `tokens` tokens, in all layers."""
    return 2 * model.num_layers * rows * tokens * (model.hidden_size // tp) * itemsize

"""The table of objectives: the one place that maps a configuration's `objective.name` to what it means."""

from __future__ import annotations

from collections.abc import Callable

from mlm.finetune.tasks import TASKS
from mlm.train.objectives.base import MicroBatch, Objective, Setting, ValidationResult
from mlm.train.objectives.finetuning import FineTuning
from mlm.train.objectives.masked_lm import MaskedLm
from mlm.train.objectives.next_token import NextToken

__all__ = [
    "OBJECTIVES",
    "MicroBatch",
    "Objective",
    "Setting",
    "ValidationResult",
    "build_objective",
]

OBJECTIVES: dict[str, Callable[[Setting], Objective]] = {
    "next_token": NextToken,
    "masked_lm": MaskedLm,
    **dict.fromkeys(TASKS, FineTuning),
}


def build_objective(setting: Setting) -> Objective:
    """The configured objective on this rank."""
    return OBJECTIVES[setting.config.objective.name](setting)

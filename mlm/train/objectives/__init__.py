"""The table of objectives: the one place that maps a configuration's `objective.name` to what it means."""

from __future__ import annotations

from collections.abc import Callable

from mlm.train.objectives.base import Figure, MicroBatch, Objective, Setting, ValidationResult
from mlm.train.objectives.next_token import NextToken

__all__ = [
    "OBJECTIVES",
    "Figure",
    "MicroBatch",
    "Objective",
    "Setting",
    "ValidationResult",
    "build_objective",
]

OBJECTIVES: dict[str, Callable[[Setting], Objective]] = {"next_token": NextToken}


def build_objective(setting: Setting) -> Objective:
    """The configured objective on this rank."""
    return OBJECTIVES["next_token"](setting)

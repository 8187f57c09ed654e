"""lm-evaluation-harness's tasks on our checkpoints: its model `mlm`, and the processes that compute for it.

`from mlm.harness import MlmLM` needs the extra `harness`; everything else here does without.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from mlm.errors import Problem

if TYPE_CHECKING:
    from mlm.harness.adapter import MlmLM

__all__ = ["MlmLM", "missing"]


def missing() -> list[Problem]:
    """The problem of an lm_eval that is not installed; [] where it is."""
    if importlib.util.find_spec("lm_eval") is not None:
        return []
    return [Problem("lm_eval", "is not installed", "pip install 'mlm[harness]'")]


def __getattr__(name: str) -> Any:
    # The processes that compute import this package too, and have no use for lm_eval.
    if name != "MlmLM":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for problem in missing():
        raise ImportError(str(problem))
    from mlm.harness.adapter import MlmLM

    return MlmLM

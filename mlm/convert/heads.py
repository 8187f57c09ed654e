"""Which parameters may differ between the weights that a training starts from and its model. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Heads:
    """Beginnings of our names. fresh: drawn anew where the weights lack them; dropped: left out where they
    have them and the model does not."""

    fresh: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


_POOLED = Heads(fresh=("task_head.", "pooler."), dropped=("lm_head.", "order_head."))
_UNPOOLED = Heads(fresh=("task_head.",), dropped=("lm_head.", "order_head.", "pooler."))

ALLOWED: dict[str, Heads] = {
    # An encoder alone, or one with the masked-token head alone, can go on with both tasks.
    "masked_lm": Heads(fresh=("pooler.", "lm_head.", "order_head.")),
    **dict.fromkeys(("race", "mnli", "qqp"), _POOLED),
    **dict.fromkeys(("squad_v1", "squad_v2"), _UNPOOLED),
}
"""By objective.name; with any other all parameters have to be there, and nothing else."""


def allowed_heads(objective: str) -> Heads:
    """Those of an objective."""
    return ALLOWED.get(objective, Heads())


def name_problems(there: set[str], needed: set[str], heads: Heads) -> tuple[list[str], list[str]]:
    """Of a checkpoint's parameters and a model's: (missing, left over), beyond what is allowed."""
    missing = sorted(name for name in needed - there if not name.startswith(heads.fresh))
    return missing, sorted(name for name in there - needed if not name.startswith(heads.dropped))

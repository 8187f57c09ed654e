"""Which steps profile=true records, and what can be wrong with a choice of them."""

from __future__ import annotations

from mlm.config.schema import TrainConfig
from mlm.errors import Problem

MOST = 10
"""Steps of one trace: more are slow to write and open, and tell nothing that these do not."""


def default_steps(train_steps: int) -> list[int]:
    """The last three steps; of fewer than ten the last third, so that most of a run stays measured."""
    count = max(1, min(3, train_steps // 3))
    return list(range(train_steps - count + 1, train_steps + 1))


def profile_problems(config: TrainConfig) -> list[Problem]:
    """What is wrong with config.profile_steps; config.train.steps has to be in its range."""
    steps, last = config.profile_steps, config.train.steps
    if steps is None:
        return []
    where = f"profile_steps=[{','.join(map(str, steps))}]"
    if not config.profile:
        return [Problem(where, "is for profile=true", "add profile=true, or leave profile_steps out")]
    example = f"profile_steps=[{','.join(map(str, default_steps(last)))}]"
    if not steps:
        return [Problem(where, "names no step", f"use {example}, or profile=false")]
    if len(set(steps)) < len(steps):
        return [Problem(where, "names a step twice", f"use {example}")]
    if len(steps) > MOST:
        return [Problem(where, f"is {len(steps)} steps, more than {MOST}", f"use {example}")]
    outside = [step for step in steps if not 1 <= step <= last]
    if outside:
        wrong = f"names step {outside[0]}, which is not in 1 to train.steps={last}"
        return [Problem(where, wrong, f"use {example}")]
    return []

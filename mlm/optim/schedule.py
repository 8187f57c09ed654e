"""Learning rate by step: linear warm-up, then one cosine (paper, section 4.2) or one straight line (5.3)."""

from __future__ import annotations

import math

from mlm.config.schema import Decay


def learning_rate(
    step: int,
    *,
    lr: float,
    min_lr: float,
    warmup_steps: int,
    decay_steps: int,
    decay: Decay = Decay.cosine,
) -> float:
    """The learning rate of the step-th update, counted from 1.

        step <= warmup_steps:   lr * step / warmup_steps            > 0 at step 1, lr at step warmup_steps
        then:                   min_lr + (lr - min_lr) left(t),
                                t = (step - warmup_steps) / (decay_steps - warmup_steps)
                                left(t) = (1 + cos(pi t)) / 2, or 1 - t for a linear decay
        step >= decay_steps:    min_lr

    The decay ends at min_lr, it is not one to zero cut off there.
    """
    if step < warmup_steps:
        return lr * step / warmup_steps
    if step >= decay_steps:
        return min_lr if decay_steps > warmup_steps else lr
    t = (step - warmup_steps) / (decay_steps - warmup_steps)
    left = 0.5 * (1.0 + math.cos(math.pi * t)) if decay is Decay.cosine else 1.0 - t
    return min_lr + (lr - min_lr) * left

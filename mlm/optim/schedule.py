"""Learning rate by step: linear warm-up, then one cosine (paper, section 4.2)."""

from __future__ import annotations

import math


def learning_rate(step: int, *, lr: float, min_lr: float, warmup_steps: int, decay_steps: int) -> float:
    """The learning rate of the step-th update, counted from 1.

        step <= warmup_steps:   lr * step / warmup_steps            > 0 at step 1, lr at step warmup_steps
        then:                   min_lr + (lr - min_lr) (1 + cos(pi t)) / 2,
                                t = (step - warmup_steps) / (decay_steps - warmup_steps)
        step >= decay_steps:    min_lr

    The cosine ends at min_lr, it is not a cosine to zero cut off there.
    """
    if step < warmup_steps:
        return lr * step / warmup_steps
    if step >= decay_steps:
        return min_lr if decay_steps > warmup_steps else lr
    t = (step - warmup_steps) / (decay_steps - warmup_steps)
    return min_lr + (lr - min_lr) * 0.5 * (1.0 + math.cos(math.pi * t))

"""What a task asks of a model and what it gets back: runs of tokens of which the last few are scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Segment:
    """Tokens that a model sees at once, at most its context + 1 of them; the last `scored` are targets.

    tokens: ids, int64 [n]; the model reads tokens[:-1] and predicts tokens[1:]. 1 <= scored <= n - 1.
    """

    tokens: NDArray[np.int64]
    scored: int


@dataclass(frozen=True)
class Scores:
    """One entry per segment, in the order of the segments.

    nll: float64 [segments], sum over a segment's targets in nats. all_greedy: bool [segments], every target
    is the argmax of the real vocabulary, given the true tokens before it; last_greedy: the last target is.
    """

    nll: NDArray[np.float64]
    all_greedy: NDArray[np.bool_]
    last_greedy: NDArray[np.bool_]


@dataclass(frozen=True)
class Variant:
    """One way of measuring a task: a row of the result table.

    name: short, stable (`paper`, `stride 512`, `lm-eval wikitext`); protocol: one sentence that says exactly
    what is done; is_paper: whether it is the paper's protocol with the paper's window; summarise: from scores
    to named figures and every count that went into them (JSON scalars). headline: the figure of the table's
    main column.
    """

    name: str
    protocol: str
    segments: Sequence[Segment]
    summarise: Callable[[Scores], dict[str, Any]]
    headline: str
    is_paper: bool = False

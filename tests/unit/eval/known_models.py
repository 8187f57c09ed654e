"""Models whose probabilities are written down, scored by the plainest loop: what closed forms are about."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mlm.eval.requests import Scores, Segment, Variant

Model = Callable[[list[int]], dict[int, float]]
"""From the tokens seen to the probabilities of the next; tokens left out have probability 0."""


def score(segments: Sequence[Segment], model: Model) -> Scores:
    nll, all_greedy, last_greedy = [], [], []
    for segment in segments:
        tokens = segment.tokens.tolist()
        total, right = 0.0, []
        for at in range(len(tokens) - segment.scored, len(tokens)):
            chances = model(tokens[:at])
            total -= math.log(chances[tokens[at]])
            right.append(max(chances, key=chances.__getitem__) == tokens[at])
        nll.append(total)
        all_greedy.append(all(right))
        last_greedy.append(right[-1])
    return Scores(np.asarray(nll), np.asarray(all_greedy), np.asarray(last_greedy))


def uniform_scores(segments: Sequence[Segment], vocab_size: int) -> Scores:
    """Zero logits; the argmax of equal logits is token 0, which no test's text ends with."""
    nll = np.asarray([segment.scored * math.log(vocab_size) for segment in segments])
    wrong = np.zeros(len(segments), dtype=bool)
    return Scores(nll, wrong, wrong)


def by_name(variants: Sequence[Variant]) -> dict[str, Variant]:
    found = {variant.name: variant for variant in variants}
    assert len(found) == len(variants), "two rows have one name"
    return found

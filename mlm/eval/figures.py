"""From summed log-likelihoods and counts to the figures people quote."""

from __future__ import annotations

import math
from typing import Any


def perplexity(nll: float, count: float) -> float:
    """exp(nll / count), nll in nats; inf where that overflows."""
    mean = nll / count
    return math.exp(mean) if mean < 700 else math.inf


def text_figures(nll_total: float, *, n_tokens: int, n_words: int, n_bytes: int) -> dict[str, Any]:
    """A text's nll in nats by token, by word and by byte, beside the counts it is divided by.

    n_tokens: targets scored. ppl_token = exp(nll_total / n_tokens), ppl_word = exp(nll_total / n_words),
    bits_per_byte = nll_total / (n_bytes ln 2).
    """
    return {
        "nll_total": nll_total,
        "n_tokens": n_tokens,
        "n_words": n_words,
        "n_bytes": n_bytes,
        "ppl_word": perplexity(nll_total, n_words),
        "ppl_token": perplexity(nll_total, n_tokens),
        "bits_per_byte": nll_total / (n_bytes * math.log(2)),
    }

"""From lm_eval's requests, once they are ids, to what our engines take. Imports no torch, no lm_eval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlm.errors import ConfigError, DataError, Problem
from mlm.eval.requests import Segment
from mlm.eval.windows import windows
from mlm.harness.messages import Drawing

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""What generation_kwargs call the number of new tokens; the first that is there counts."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "num_beams": (1, None),
    "num_return_sequences": (1, None),
    "repetition_penalty": (1, None),
    "length_penalty": (1, None),
    "min_p": (0, None),
    "use_cache": (True, False, None),
}
"""Settings of other generators at which they do nothing."""


def continuation(context: Sequence[int], scored: Sequence[int], max_length: int, text: str) -> Segment:
    """The segment that scores a continuation, its context cut on the left where both are too long.

    max_length: tokens that the model reads at once. text: the continuation, for messages. Raises DataError
    when there is nothing to score or no room for it.
    """
    assert len(context) >= 1, "the first token is predicted from something"
    if not scored:
        raise DataError(f"the continuation {text!r} has no token of its own: end its context at a word")
    if len(scored) > max_length:
        raise DataError(
            f"the continuation {text[:40]!r} has {len(scored):,} tokens, the model reads {max_length:,}: "
            "use a larger max_length or another task"
        )
    tokens = np.asarray([*context, *scored][-(max_length + 1) :], dtype=np.int64)
    return Segment(tokens, len(scored))


def rolling(prefix: int, tokens: Sequence[int], max_length: int) -> list[Segment]:
    """The segments that score a whole text after the prefix, each token once; [] of no tokens.

    They do not overlap, but for the last, which begins early enough to be as long as the others.
    """
    if not tokens:
        return []
    ids = np.asarray([prefix, *tokens], dtype=np.int64)
    return windows(ids, max_length, max_length, full_last=True)


def drawing(settings: Mapping[str, Any], max_gen_toks: int) -> Drawing:
    """What a request's generation_kwargs ask for. Raises ConfigError naming what there is not here.

    Without do_sample, a temperature above 0 asks for sampling; with do_sample and no temperature it is 1.
    max_gen_toks: new tokens where the request does not say how many.
    """
    left = {name: value for name, value in settings.items() if value is not None}
    lengths = [left.pop(name) for name in _LENGTHS if name in left]
    until = left.pop("until", [])
    sampled = left.pop("do_sample", None)
    temperature = float(left.pop("temperature", 1.0 if sampled else 0.0))
    top_k, top_p = int(left.pop("top_k", 0)), float(left.pop("top_p", 1.0))
    problems = [
        Problem(f"generation_kwargs {name}={value}", "is nothing the model mlm can do", "leave it out")
        for name, value in left.items()
        if value not in _NEUTRAL.get(name, ())
    ]
    if temperature < 0:
        problems.append(Problem(f"temperature={temperature:g}", "is below 0", "use 0 for greedy, or more"))
    if not 0 < top_p <= 1:
        problems.append(Problem(f"top_p={top_p:g}", "is no share", "use more than 0 and at most 1"))
    if problems:
        raise ConfigError(problems)
    return Drawing(
        max_tokens=int(lengths[0]) if lengths else max_gen_toks,
        # An empty string would end every text before it begins.
        until=tuple(text for text in ([until] if isinstance(until, str) else until) if text),
        temperature=0.0 if sampled is False else temperature,
        top_k=top_k if top_k > 0 else None,
        top_p=top_p,
    )


def prompt_room(drawing: Drawing, max_length: int) -> int:
    """How many of a prompt's last tokens the model sees, so that all new ones fit as well.

    Raises ConfigError when they leave no room for a prompt.
    """
    room = max_length - drawing.max_tokens
    if room < 1:
        where = f"max_gen_toks={drawing.max_tokens}"
        wrong = f"leaves no room for a prompt in the {max_length:,} tokens that the model sees"
        remedy = f"use --gen_kwargs max_gen_toks={max(1, max_length // 2)}"
        raise ConfigError(Problem(where, wrong, remedy))
    return room

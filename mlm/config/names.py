"""Nearest names, for the remedy of a problem that a typing slip may have caused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

_CLOSE = 0.6
"""Least similarity worth offering; difflib's own default."""


def nearest(word: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """The candidates most like word, best first; [] when none is close.

    A dotted candidate is compared whole and by its last part, so that `lr` finds `optim.lr` and
    `model.hiden_size` finds `model.hidden_size`.
    """
    scored = [(_likeness(word, candidate), candidate) for candidate in candidates]
    close = sorted((s for s in scored if s[0] >= _CLOSE), key=lambda s: (-s[0], s[1]))
    # A clear winner stands alone: offering three names beside an obvious one only costs reading.
    if close and close[0][0] >= 0.8:
        close = [s for s in close if s[0] >= close[0][0] - 0.05]
    return [candidate for _, candidate in close[:limit]]


def _likeness(word: str, candidate: str) -> float:
    word, candidate = word.lower().replace("/", ".").replace("-", "_"), candidate.lower()
    section, _, name = word.rpartition(".")
    its_section, _, its_name = candidate.rpartition(".")
    by_name = SequenceMatcher(None, name, its_name).ratio()
    # `batch_size` is nobody's name, but it ends global_batch_size and micro_batch_size.
    if len(name) > 3 and its_name.endswith(f"_{name}"):
        by_name = max(by_name, 0.95)
    if section == its_section:
        return by_name
    # Weighed so that `modle` is nearer to `model` than to `launch.mode`, and `parallel.tp` to `tp`.
    by_name *= 0.8 if section else 0.85
    whole = SequenceMatcher(None, word, candidate).ratio() if its_section or not section else 0.0
    return max(by_name, whole)


def alternatives(words: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

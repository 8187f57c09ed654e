"""From the logits of one position to the next token: filters, and random numbers that belong to a text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are drawn: by softmax(logits / temperature), from the top_k likeliest, of these from top_p.

    temperature: 0 takes the likeliest token, the lowest id of equals. top_k, top_p: None leaves all in.
    top_p: the smallest set of likeliest tokens, at least one, whose share of what top_k left reaches it.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def stream(self, prompt: int, sample: int, ids: Sequence[int] = ()) -> Stream:
        """The random numbers of a prompt's sample: the same in any batch and at any tp.

        prompt, sample: their numbers. ids: the prompt's own. Under equal noise the texts of two prompts would
        resemble each other.
        """
        of_prompt = hashlib.sha256(np.asarray(ids, dtype="<i8").tobytes()).hexdigest()
        return Stream(f"{self.seed} {prompt} {sample} {of_prompt}")

    def choose(self, logits: NDArray[np.float64], stream: Stream, step: int) -> int:
        """The id of the text's token number `step`. Shapes: logits [vocab], real ids only.

        argmax(logits / temperature + Gumbel noise) over the tokens that are left, which is a draw from their
        softmax. It is taken in place of a search in cumulated probabilities because rounding moves all of
        these together: other sums at another tp or in another batch would change one draw in a few thousand.
        A largest sum changes only where two are as close as the rounding itself.

        Raises CheckpointError when no logit is a number.
        """
        if np.isnan(logits).any() or not np.isfinite(logits.max()):
            raise not_finite()
        if self.is_greedy:
            return int(logits.argmax())
        scores = logits / self.temperature
        ids = self._kept(scores)
        noisy = scores[ids] - np.log(-np.log(stream.uniform(step, ids)))
        return int(ids[noisy.argmax()])

    def _kept(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """The ids that the filters leave, ascending."""
        ids = np.arange(len(scores))
        if self.top_k is not None:
            ids = ids[_largest(scores, self.top_k)]
        if self.top_p is not None and self.top_p < 1:
            left = scores[ids]
            mass = np.cumsum(np.sort(np.exp(left - left.max()))[::-1])
            ids = ids[_largest(left, 1 + int(np.searchsorted(mass, self.top_p * mass[-1])))]
        return ids


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Indices of the largest values, ascending; of equals at the border the first."""
    if count >= len(values):
        return np.arange(len(values))
    border = np.partition(values, len(values) - count)[len(values) - count]
    keep = values > border
    equal = np.flatnonzero(values == border)
    keep[equal[: count - int(keep.sum())]] = True
    return np.flatnonzero(keep)


@dataclass(frozen=True)
class Stream:
    """Random numbers of one text: pure functions of its name, the step and the token's id."""

    name: str

    def uniform(self, step: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """A number strictly between 0 and 1 for each id at a step. Shapes: [n] -> [n].

        By id and not by place among the kept ones: what a filter leaves out changes no other number.
        """
        digest = hashlib.sha256(f"{self.name} {step}".encode()).digest()
        key = np.uint64(int.from_bytes(digest[:8], "little"))
        return ((_split_mix(key, ids) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _split_mix(key: np.uint64, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Outputs number `ids` of the generator SplitMix64 (Steele, Lea and Flood, 2014) that starts at key."""
    x = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x += key
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def not_finite() -> CheckpointError:
    """The error of a model whose logits no token can be chosen from."""
    return CheckpointError("the model's logits are not finite: use an earlier checkpoint of the run")

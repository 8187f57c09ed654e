"""A weighted blend of datasets: which dataset a sample comes from, and which of its samples it is."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlm.errors import Problem

# Shares are kept in units of 2^-40 and a sample number is below 2^42, so that a product of the two, taken
# in halves, fits 64 bits.
UNIT_BITS = 40
HALF_BITS = 21
MAX_SAMPLES = 1 << (2 * HALF_BITS)
# Placing a leaf tries every place for it: of many datasets the lightest are first paired up without trying.
PLACED = 32


def blend_problem(weights: Sequence[float], where: str = "data.blend") -> Problem | None:
    """What is wrong with the weights of a blend: each finite, none negative, one above zero."""
    if not weights:
        return Problem(where, "names no dataset", "give at least one {weight: WEIGHT, path: PATH}")
    for index, weight in enumerate(weights):
        if not math.isfinite(weight) or weight < 0:
            wrong = "is negative" if weight < 0 else "is not a finite number"
            remedy = "use a number above 0, or 0 for no sample of it"
            return Problem(f"{where}[{index}].weight={weight:g}", wrong, remedy)
    if not any(weights):
        return Problem(where, "gives every dataset the weight 0", "give one a weight above 0")
    return None


class Blend:
    """Sample number -> (dataset, sample number in it), a pure function of the weights and the number.

    A binary tree has the datasets as its leaves. At each node, of the first n samples that come there
    round(share * n) go left: a closed form, so that nothing is stored and a run resumes anywhere. Each
    split rounds by at most 1/2, which a dataset inherits from the nodes above in proportion to its part of
    them; the tree is chosen to keep that sum, `bound`, small: after any N samples a dataset with weight w
    has given w*N samples to within `bound`, which is below 1 for up to four datasets and below 1.5 always.
    """

    def __init__(self, weights: Sequence[float]):
        """weights: relative, at least one above zero; a dataset with weight zero is never drawn."""
        found = blend_problem(weights)
        assert found is None, str(found)
        # Fractions of the decimals that were typed: 0.3 and 3 of 10 are the same share.
        exact = [Fraction(repr(float(weight))) for weight in weights]
        self.weights = [float(weight / sum(exact)) for weight in exact]
        self.root = _tree([_Node(weight / sum(exact), index) for index, weight in enumerate(exact) if weight])
        self.bound = _bound(self.root)

    def locate(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(dataset, number of the sample in that dataset) of each sample. Shapes: [n] -> 2 x [n].

        Raises ValueError outside [0, 2^42).
        """
        numbers = np.asarray(numbers, dtype=np.int64)
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < MAX_SAMPLES:
            raise ValueError(f"sample numbers {numbers.min()} to {numbers.max()} are not in [0, 2^42)")
        datasets, inner = np.empty_like(numbers), np.empty_like(numbers)
        waiting = [(self.root, np.arange(len(numbers)), numbers)]
        while waiting:
            node, places, here = waiting.pop()  # here: numbers among the samples of this node
            if node.left is None or node.right is None:
                datasets[places], inner[places] = node.dataset, here
                continue
            before = _rounded(node.share, here)
            goes_left = _rounded(node.share, here + 1) > before
            waiting.append((node.left, places[goes_left], before[goes_left]))
            waiting.append((node.right, places[~goes_left], (here - before)[~goes_left]))
        return datasets, inner

    def counts(self, samples: int) -> list[int]:
        """How many of the first `samples` samples each dataset gives; they sum to `samples`."""
        counts = [0] * len(self.weights)
        waiting = [(self.root, samples)]
        while waiting:
            node, number = waiting.pop()
            if node.left is None or node.right is None:
                counts[node.dataset] = number
                continue
            left = int(_rounded(node.share, np.array([number], dtype=np.int64))[0])
            waiting += [(node.left, left), (node.right, number - left)]
        return counts


@dataclass(frozen=True)
class _Node:
    """A dataset, or two nodes among which samples are divided. share: left's part, in units of 2^-40."""

    weight: Fraction
    dataset: int = -1
    left: _Node | None = None
    right: _Node | None = None

    @property
    def share(self) -> int:
        assert self.left is not None, "a dataset is not divided"
        return round((self.left.weight / self.weight) * (1 << UNIT_BITS))


def _rounded(share: int, n: NDArray[np.int64]) -> NDArray[np.int64]:
    """floor(share * n / 2^40 + 1/2), exactly: it grows by 0 or 1 from one n to the next."""
    high, low = n >> HALF_BITS, n & ((1 << HALF_BITS) - 1)
    low_product = low * share + (1 << (UNIT_BITS - 1))
    return (high * share + (low_product >> HALF_BITS)) >> (UNIT_BITS - HALF_BITS)


def _tree(leaves: list[_Node]) -> _Node:
    """The lightest paired up as Huffman does, the rest put, light ones first, where `_bound` stays least."""
    waiting = sorted(leaves, key=lambda node: node.weight)
    while len(waiting) > PLACED:
        light, next_light, *rest = waiting
        insort(rest, _pair(light, next_light), key=lambda node: node.weight)
        waiting = rest
    tree = waiting[0]
    for leaf in waiting[1:]:
        tree = min(_with_leaf(tree, leaf), key=_bound)
    return tree


def _pair(left: _Node, right: _Node) -> _Node:
    return _Node(left.weight + right.weight, left=left, right=right)


def _with_leaf(tree: _Node, leaf: _Node) -> list[_Node]:
    """Every tree that has the leaf beside one of its nodes."""
    trees = [_pair(tree, leaf)]
    if tree.left is not None and tree.right is not None:
        trees += [_pair(left, tree.right) for left in _with_leaf(tree.left, leaf)]
        trees += [_pair(tree.left, right) for right in _with_leaf(tree.right, leaf)]
    return trees


def _bound(root: _Node) -> float:
    """The most by which a dataset's count can differ from its weight times the samples.

    A node's count errs by its part of its parent's error and by 1/2 for its own rounding.
    """
    worst, waiting = 0.0, [(root, 0.0)]
    while waiting:
        node, error = waiting.pop()
        if node.left is None or node.right is None:
            worst = max(worst, error)
            continue
        for child in (node.left, node.right):
            waiting.append((child, error * float(child.weight) / float(node.weight) + 0.5))
    return worst

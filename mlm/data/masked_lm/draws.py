"""Random numbers of a sample: each a pure function of (seed, purpose, sample number, place)."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from mlm.data.order import mix

# The step of SplitMix64: draw j of a sample is output j of that generator, begun at the sample's key.
STEP = np.uint64(0x9E3779B97F4A7C15)


def sample_keys(numbers: NDArray[np.int64], purpose: str, seed: int) -> NDArray[np.uint64]:
    """A key per sample; those of two purposes or seeds have nothing in common. Shapes: [n]."""
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return mix(mix(numbers.astype(np.uint64)) ^ np.uint64(int.from_bytes(digest[:8], "little")))


def draw(keys: NDArray[np.uint64], first: int, count: int) -> NDArray[np.uint64]:
    """Draws first to first + count - 1 of each sample, 64 random bits each. Shapes: [n] -> [n, count]."""
    places = np.arange(first, first + count, dtype=np.uint64) * STEP
    return mix(keys[:, None] + places)


def below(bits: NDArray[np.uint64], bound: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """A whole number in [0, bound) of each draw, bound at most 2^31; equally likely to within 2^-32."""
    return ((bits >> np.uint64(32)) * np.asarray(bound, dtype=np.uint64) >> np.uint64(32)).astype(np.int64)


def unit(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number in [0, 1) of each draw, in steps of 2^-53."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

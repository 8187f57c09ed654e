"""The order of training samples: from a sample's number alone, with no shuffled list to build or store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Four would do for a large set; with eight, orders of 5 to 7 windows are visibly not all equally likely.
ROUNDS = 16


@dataclass(frozen=True)
class SampleOrder:
    """Sample number -> (epoch, window, offset), a pure function of (seed, number).

    Epoch e takes numbers e*windows to (e+1)*windows - 1 and visits each window in [0, windows) once, in
    an order of its own. Its windows begin `offset` tokens into the text, a number in [0, offsets) of its
    own, so that epochs cut the text at different places. 64-bit integers throughout.
    """

    windows: int
    offsets: int
    seed: int

    def locate(
        self, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(epoch, window, offset) of each number. Shapes: [n] -> 3 x [n]. Raises ValueError below 0."""
        numbers = np.asarray(numbers, dtype=np.int64)
        if numbers.size and int(numbers.min()) < 0:
            raise ValueError(f"sample number {int(numbers.min())} is negative")
        epoch, position = np.divmod(numbers, self.windows)
        keys = epoch_keys(epoch, "sample order", self.seed)  # [n]
        offset = (mix(keys + _constant(ROUNDS)) % np.uint64(self.offsets)).astype(np.int64)
        return epoch, permute(position, keys, self.windows), offset


def epoch_keys(epochs: NDArray[np.int64], purpose: str, seed: int) -> NDArray[np.uint64]:
    """A key per epoch for `permute`; those of two purposes or seeds have nothing in common. Shapes: [n]."""
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return mix(mix(epochs.astype(np.uint64)) ^ np.uint64(int.from_bytes(digest[:8], "little")))


def permute(
    position: NDArray[np.int64], keys: NDArray[np.uint64], size: int, rounds: int = ROUNDS
) -> NDArray[np.int64]:
    """Where a keyed permutation of [0, size) sends each position. Shapes: [n], [n] -> [n].

    A Feistel network permutes [0, 2^bits), the next power of two; results at or past `size` are sent
    through again until they fall below it (cycle walking), fewer than two passes on average, which keeps
    it a permutation of [0, size).
    """
    bits = (size - 1).bit_length()
    image = _feistel(position.astype(np.uint64), keys, bits, rounds)
    while True:
        outside = np.flatnonzero(image >= np.uint64(size))
        if not len(outside):
            return image.astype(np.int64)
        image[outside] = _feistel(image[outside], keys[outside], bits, rounds)


def _feistel(
    value: NDArray[np.uint64], keys: NDArray[np.uint64], bits: int, rounds: int
) -> NDArray[np.uint64]:
    """Permute [0, 2^bits): the low and the high part are in turn XORed with a hash of the other."""
    low_bits = np.uint64((bits + 1) // 2)
    low_mask = np.uint64((1 << int(low_bits)) - 1)
    high_mask = np.uint64((1 << (bits // 2)) - 1)
    low, high = value & low_mask, value >> low_bits
    for number in range(0, rounds, 2):
        low = low ^ (mix((keys + _constant(number)) ^ high) & low_mask)
        high = high ^ (mix((keys + _constant(number + 1)) ^ low) & high_mask)
    return (high << low_bits) | low


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit in reaches every bit out."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _constant(number: int) -> np.uint64:
    """Differs in the high bits, where the halves of a position (below 2^32) have none."""
    return np.uint64((number + 1) << 56)

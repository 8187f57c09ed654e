"""MinHash signatures of documents (by rensa) and the keys of locality-sensitive hashing made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.cleaning.shingles import Hashes, mix

PERMUTATIONS = 128
MISSED = 1e-3
"""Largest probability that a pair exactly at the threshold is never compared."""
_SEED = 1


@dataclass(frozen=True)
class Bands:
    """A signature cut into bands of so many values: documents that agree in a whole band are compared."""

    count: int
    rows: int

    @classmethod
    def for_threshold(cls, threshold: float) -> Bands:
        """The longest bands, so the fewest comparisons, with at most MISSED at the threshold."""
        for rows in range(16, 1, -1):
            bands = cls(PERMUTATIONS // rows, rows)
            if bands.missed(threshold) <= MISSED:
                return bands
        return cls(PERMUTATIONS, 1)

    def missed(self, similarity: float) -> float:
        """Probability that two documents of this Jaccard similarity agree in no band: (1 - s^rows)^count."""
        return float((1 - similarity**self.rows) ** self.count)

    def keys(self, sets: Sequence[Hashes]) -> NDArray[np.uint64]:
        """The bands of each set of shingles, a number each; no set may be empty. Shapes: [sets, count]."""
        if not sets:
            return np.empty((0, self.count), dtype=np.uint64)
        from rensa import RMinHash

        offsets = np.cumsum([0, *(len(shingles) for shingles in sets)])
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(
            np.concatenate(sets), offsets, PERMUTATIONS, _SEED
        )
        signatures = np.asarray(matrix.to_rows(), dtype=np.uint64)  # [sets, PERMUTATIONS]
        bands = signatures[:, : self.count * self.rows].reshape(len(sets), self.count, self.rows)
        keys = np.full((len(sets), self.count), self.rows, dtype=np.uint64)
        for row in range(self.rows):
            keys = mix(keys ^ bands[:, :, row])
        return keys


def fingerprint(shingles: Hashes) -> bytes:
    """16 bytes, equal for equal sets of shingles."""
    return hashlib.blake2b(shingles.tobytes(), digest_size=16).digest()

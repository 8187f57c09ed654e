"""The rules that look at one document at a time, and what the comparison with others needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.cleaning.contamination import EvaluationSet, Overlap
from mlm.corpus.cleaning.newlines import fix_newlines
from mlm.corpus.cleaning.shingles import Hashes, shingle_sets, unit_rows
from mlm.corpus.cleaning.signatures import Bands, fingerprint
from mlm.corpus.preparing.engines import Encode, build, engine_names
from mlm.data.tokenizers import Tokenizer

KEPT, SHORT, CONTAMINATED = 0, 1, 2


@dataclass(frozen=True)
class Rules:
    """What `mlm-data filter` drops and changes; the defaults are the paper's.

    min_tokens: of a document, 0 for any; duplicates: the Jaccard similarity above which one is dropped, None
    for never; shingle: units of an n-gram of that similarity.
    """

    min_tokens: int = 128
    duplicates: float | None = 0.7
    shingle: int = 5
    fix_newlines: bool = False


@dataclass(frozen=True)
class Judgement:
    """Of a few documents. verdicts: KEPT, SHORT or CONTAMINATED; texts: as they are to be written.

    tokens: of each, 0 where nobody counts them. Of the kept ones, in order: sizes, prints and keys of their
    sets of shingles; nothing when duplicates are not sought.
    """

    verdicts: NDArray[np.uint8]
    texts: list[str]
    tokens: NDArray[np.int64]
    overlaps: dict[int, Overlap]
    sizes: NDArray[np.uint32]
    prints: bytes
    keys: NDArray[np.uint64]


@dataclass(frozen=True)
class Judge:
    """Judges documents one by one. tokenizer: None when nothing counts tokens; known: None likewise."""

    rules: Rules
    tokenizer: Tokenizer | None
    known: EvaluationSet | None

    def __call__(self, texts: Sequence[str]) -> Judgement:
        fixed = [fix_newlines(text) for text in texts] if self.rules.fix_newlines else list(texts)
        tokens = np.zeros(len(fixed), dtype=np.int64)
        verdicts = np.full(len(fixed), KEPT, dtype=np.uint8)
        if self.tokenizer is not None:
            encode = _encoder(self.tokenizer)
            tokens[:] = [len(encode(text)) for text in fixed]
            verdicts[tokens < self.rules.min_tokens] = SHORT
        overlaps: dict[int, Overlap] = {}
        sets: list[Hashes] = []
        if self.known is not None or self.rules.duplicates is not None:
            numbers = np.flatnonzero(verdicts == KEPT).tolist()
            long_enough = [fixed[number] for number in numbers]
            rows = unit_rows(long_enough)
            found = self.known.overlaps(rows, long_enough) if self.known else {}
            overlaps = {numbers[index]: overlap for index, overlap in found.items()}
            verdicts[list(overlaps)] = CONTAMINATED
            if self.rules.duplicates is not None:
                everyone = shingle_sets(rows, self.rules.shingle)
                sets = [mine for index, mine in enumerate(everyone) if index not in found]
        return Judgement(verdicts, fixed, tokens, overlaps, *self._compared(sets))

    def _compared(self, sets: list[Hashes]) -> tuple[NDArray[np.uint32], bytes, NDArray[np.uint64]]:
        sizes = np.asarray([len(s) for s in sets], dtype=np.uint32)
        if self.rules.duplicates is None:
            return sizes, b"", np.empty((0, 0), dtype=np.uint64)
        bands = Bands.for_threshold(self.rules.duplicates)
        keys = np.zeros((len(sets), bands.count), dtype=np.uint64)
        # A text without a word is like no other: it has no signature and is never compared.
        keys[sizes > 0] = bands.keys([s for s in sets if len(s)])
        return sizes, b"".join(fingerprint(s) for s in sets), keys


@cache
def _encoder(tokenizer: Tokenizer) -> Encode:
    """The fastest engine of bounded memory, made once a process."""
    return build(next(name for name in engine_names(tokenizer) if name != "gigatoken"), lambda: tokenizer)

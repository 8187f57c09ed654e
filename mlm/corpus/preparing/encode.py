"""What a worker does with a block: read its records, encode their texts, pack the ids of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.preparing import engines
from mlm.corpus.reading.blocks import Block, Cutting
from mlm.corpus.reading.inputs import Source
from mlm.corpus.reading.records import Flaw, read_records
from mlm.data.indexed import DTYPES, UINT16_BELOW
from mlm.data.sentences import SentenceCounts, split_sentences
from mlm.data.tokenizers import load_tokenizer
from mlm.errors import DataError

# Of the flaws of one block, so many are told; all are counted.
FLAWS_TOLD = 10


@dataclass(frozen=True)
class Recipe:
    """All that decides the tokens of a text. tokenizer: its description; eod: id after a document, or None.

    longest_sentence: characters; 0 keeps documents whole.
    """

    sources: tuple[Source, ...]
    cutting: Cutting
    tokenizer: dict[str, Any]
    engine: str
    eod: int | None
    longest_sentence: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint16 for vocabularies below 65,500, else int32, as the ecosystem has it."""
        return DTYPES[8 if self.tokenizer["vocab_size"] < UINT16_BELOW else 4]


@dataclass
class Part:
    """What one key gives: ids end to end, tokens per sequence (int32), sequences per document (int32)."""

    ids: bytes
    lengths: bytes
    documents: bytes
    tokens: int
    text_bytes: int


@dataclass
class Encoded:
    """A block, encoded. units, bytes: of the input; skipped: documents left out, by why."""

    units: int
    records: int
    bytes: int
    parts: list[Part] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    flaws: list[Flaw] = field(default_factory=list)
    flaw_kinds: Counter[str] = field(default_factory=Counter)
    forced_cuts: int = 0


class Encoder:
    """Encodes block after block by one recipe."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self._encode = engines.build(recipe.engine, lambda: load_tokenizer(recipe.tokenizer))
        eod = [] if recipe.eod is None else [recipe.eod]
        self._eod = np.array(eod, dtype=np.int64)

    def __call__(self, block: Block) -> Encoded:
        """Raises BadData when the file cannot be read, DataError for an id outside the vocabulary."""
        recipe = self.recipe
        records = read_records(block, recipe.sources, recipe.cutting)
        encoded = Encoded(records.units, len(records.texts), records.bytes)
        encoded.flaws = records.flaws[:FLAWS_TOLD]
        encoded.flaw_kinds = Counter(flaw.kind for flaw in records.flaws)
        for number, key in enumerate(recipe.cutting.keys):
            texts = [texts[number] for texts in records.texts]
            encoded.parts.append(self._part(texts, encoded, key if len(recipe.cutting.keys) > 1 else ""))
        return encoded

    def _part(self, texts: Sequence[str], encoded: Encoded, key: str) -> Part:
        full = [text for text in texts if text and not text.isspace()]
        of_key = f" ({key})" if key else ""
        if len(full) < len(texts):
            encoded.skipped[f"empty{of_key}"] += len(texts) - len(full)
        arrays, per_document = [], []
        for text in full:
            pieces = self._pieces(text, encoded)
            if pieces:
                arrays += pieces
                per_document.append(len(pieces))
            else:
                encoded.skipped[f"without any token{of_key}"] += 1
        text_bytes = sum(len(text) if text.isascii() else len(text.encode()) for text in full)
        lengths = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
        documents = np.asarray(per_document, dtype=np.int32)
        ids: NDArray[Any] = np.empty(0, dtype=np.int64)
        if arrays:
            ids = np.concatenate(self._with_eod(arrays, lengths, documents))
            # Before the cast: it would turn 70,000 into 4,464 without a word.
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= self.recipe.tokenizer["vocab_size"]:
                raise DataError(
                    f"the tokenizer gave id {low if low < 0 else high:,}, "
                    f"but its vocabulary has {self.recipe.tokenizer['vocab_size']:,}: use another tokenizer"
                )
        return Part(
            ids.astype(self.recipe.dtype).tobytes(),
            lengths.astype("<i4").tobytes(),
            documents.astype("<i4").tobytes(),
            len(ids),
            text_bytes,
        )

    def _pieces(self, text: str, encoded: Encoded) -> list[NDArray[Any]]:
        """The sequences of a document; none when it gives no token."""
        if not self.recipe.longest_sentence:
            ids = self._encode(text)
            return [ids] if len(ids) else []
        counts = SentenceCounts()
        sentences = split_sentences(text, self.recipe.longest_sentence, counts)
        encoded.forced_cuts += counts.forced
        return [ids for sentence in sentences if len(ids := self._encode(sentence))]

    def _with_eod(
        self, arrays: list[NDArray[Any]], lengths: NDArray[np.int64], documents: NDArray[np.int32]
    ) -> list[NDArray[Any]]:
        """The sequences with the end-of-document id after each document's last; its length grows by it."""
        if not len(self._eod):
            return arrays
        last = np.cumsum(documents) - 1
        lengths[last] += 1
        with_eod: list[NDArray[Any]] = []
        begin = 0
        for end in (last + 1).tolist():
            with_eod += arrays[begin:end]
            with_eod.append(self._eod)
            begin = end
        return with_eod

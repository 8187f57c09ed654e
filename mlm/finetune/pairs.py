"""Pairs of texts to classify: [CLS] first [SEP] second [SEP]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlm.data.tokenizers import Tokenizer
from mlm.finetune.encode import Controls, LabelledBatch, collate, cut_longer_first, pair_sequence
from mlm.finetune.examples import PairExample


class EncodedPairs:
    """Pairs as token ids. limit: tokens of a sequence; too long a pair loses the end of its longer text.

    cut: pairs where that happened.
    """

    def __init__(self, examples: Sequence[PairExample], tokenizer: Tokenizer, limit: int):
        self.examples, self.limit, self.controls = examples, limit, Controls.of(tokenizer)
        self.cut = 0
        self._texts = []
        for example in examples:
            first, second = tokenizer.encode(example.first), tokenizer.encode(example.second)
            self.cut += len(first) + len(second) + 3 > limit
            self._texts.append(cut_longer_first(first, second, limit - 3))

    def __len__(self) -> int:
        return len(self.examples)

    sequences_per_sample = 1

    def length(self, example: int) -> int:
        """Tokens of a pair's sequence."""
        return sum(len(text) for text in self._texts[example]) + 3

    def batch(self, examples: Sequence[int]) -> LabelledBatch:
        """The pairs with these numbers."""
        rows = [pair_sequence(*self._texts[example], self.controls) for example in examples]
        labels = np.asarray([self.examples[example].label for example in examples], dtype=np.int64)
        return LabelledBatch(collate(rows, self.controls.pad, self.limit), labels)

    def describe_cuts(self) -> str:
        """How many pairs were cut, for people."""
        return (
            f"{self.cut:,} of {len(self):,} pairs lose the end of their longer text to {self.limit:,} tokens"
        )

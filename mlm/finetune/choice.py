"""Multiple choice: a sequence per option, [CLS] passage [SEP] question and option [SEP]."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mlm.data.tokenizers import Tokenizer
from mlm.finetune.encode import Controls, Ids, LabelledBatch, PairSequence, collate, pair_sequence
from mlm.finetune.examples import ChoiceExample

_BLANK = re.compile(r"_+(?:\s+_+)*")
MAX_QUESTION_TOKENS = 128
"""Of question and option together, unless the sequence is short: then half of it."""


def question_with_option(question: str, option: str) -> str:
    """The option in place of the question's blank (the first run of underscores), or behind the question."""
    filled, blanks = _BLANK.subn(lambda _: option, question, count=1)
    return filled if blanks else f"{question} {option}"


class EncodedChoices:
    """Multiple-choice questions as token ids.

    limit: tokens of a sequence. What is too long loses the end of the passage; question and option are kept,
    up to MAX_QUESTION_TOKENS, of which they keep the last ones, so that the option stays whole.
    passages_cut, questions_cut: questions where that happened.
    """

    def __init__(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, limit: int):
        self.examples, self.limit, self.controls = examples, limit, Controls.of(tokenizer)
        self.options = len(examples[0].options)
        most = min(MAX_QUESTION_TOKENS, (limit - 3) // 2)
        known: dict[str, Ids] = {}
        self._passages, self._endings = [], []
        self.passages_cut = self.questions_cut = 0
        for example in examples:
            if example.passage not in known:
                known[example.passage] = tokenizer.encode(example.passage)[: limit - 3]
            passage = known[example.passage]
            whole = [tokenizer.encode(question_with_option(example.question, o)) for o in example.options]
            endings = [ids[max(0, len(ids) - most) :] for ids in whole]
            self._passages.append(passage)
            self._endings.append(endings)
            self.questions_cut += any(len(ids) > most for ids in whole)
            self.passages_cut += any(len(passage) + len(ids) + 3 > limit for ids in endings)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def sequences_per_sample(self) -> int:
        """One for each option."""
        return self.options

    def length(self, example: int) -> int:
        """Tokens of the longest sequence of a question."""
        longest = max(len(ending) for ending in self._endings[example])
        return min(self.limit, len(self._passages[example]) + longest + 3)

    def sequence(self, example: int, option: int) -> PairSequence:
        """The sequence of one option of a question."""
        ending = self._endings[example][option]
        return pair_sequence(self._passages[example][: self.limit - 3 - len(ending)], ending, self.controls)

    def batch(self, examples: Sequence[int]) -> LabelledBatch:
        """The questions with these numbers."""
        rows = [self.sequence(example, option) for example in examples for option in range(self.options)]
        answers = np.asarray([self.examples[example].answer for example in examples], dtype=np.int64)
        return LabelledBatch(collate(rows, self.controls.pad, self.limit), answers)

    def describe_cuts(self) -> str:
        """How many questions lost what, for people."""
        return (
            f"{self.passages_cut:,} of {len(self):,} questions lose the end of their passage to "
            f"{self.limit:,} tokens, {self.questions_cut:,} the beginning of the question"
        )

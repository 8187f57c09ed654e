"""The table of fine-tuning tasks, how each is read, encoded and judged; objectives of their names train."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlm.data.tokenizers import Tokenizer
from mlm.finetune.choice import EncodedChoices
from mlm.finetune.examples import ChoiceExample, PairExample, SpanExample
from mlm.finetune.figures import Figure, accuracies, binary_f1, span_figures
from mlm.finetune.glue import MNLI_LABELS, QQP_LABELS, read_mnli, read_qqp
from mlm.finetune.pairs import EncodedPairs
from mlm.finetune.race import LETTERS, read_race
from mlm.finetune.spans import EncodedSpans
from mlm.finetune.squad import read_squad

Scores = list[NDArray[np.float64]]
"""A model's scores: of each sample [k] probabilities of options or classes, or of windows [seq, 2] logits."""


@dataclass(frozen=True)
class Read:
    """The examples of a file. left_out: how many have no label that all agree on."""

    examples: Sequence[Any]
    left_out: int = 0


@dataclass(frozen=True)
class Judged:
    """What scores are worth. figures: by name, the one that decides first; values: further numbers.

    predictions: of each example, JSON-ready: id, prediction, scores and truth.
    """

    figures: dict[str, Figure]
    values: dict[str, float] = field(default_factory=dict)
    predictions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def headline(self) -> tuple[str, Figure]:
        """The figure by which checkpoints are compared."""
        return next(iter(self.figures.items()))


E = TypeVar("E")
"""A set of examples as token ids: its samples are what a model is given one of at a time."""


class Task(ABC, Generic[E]):
    """A fine-tuning task. name: that of its objective and of finetune=; summary: one line for --help."""

    name: str
    summary: str

    @abstractmethod
    def read(self, path: Path, *, training: bool) -> Read:
        """The examples of a file or folder. Raises BadData or ConfigError naming what is damaged."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer, limit: int) -> E:
        """The examples as token ids, sequences of at most `limit`. Raises BadData."""

    @abstractmethod
    def judge(self, encoded: E, scores: Scores) -> Judged:
        """The figures of a model's scores of all samples, in their order."""


class Race(Task[EncodedChoices]):
    """Multiple choice: accuracy of all questions, and of those of middle and high school."""

    name = "race"
    summary = "RACE, reading comprehension with four options: accuracy, of middle and high school too"

    def read(self, path: Path, *, training: bool) -> Read:
        return Read(read_race(path))

    def encode(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, limit: int) -> EncodedChoices:
        return EncodedChoices(examples, tokenizer, limit)

    def judge(self, encoded: EncodedChoices, scores: Scores) -> Judged:
        examples = encoded.examples
        chosen = np.asarray([int(np.argmax(each)) for each in scores])
        correct = chosen == np.asarray([example.answer for example in examples])
        return Judged(
            accuracies(correct, [example.part for example in examples]),
            predictions=[
                {
                    "id": example.id,
                    "prediction": LETTERS[choice],
                    "scores": each.tolist(),
                    "truth": LETTERS[example.answer],
                }
                for example, choice, each in zip(examples, chosen, scores, strict=True)
            ],
        )


class _Pairs(Task[EncodedPairs]):
    """Classes of pairs of texts. labels: the classes in the order of their numbers."""

    labels: tuple[str, ...]

    def encode(self, examples: Sequence[PairExample], tokenizer: Tokenizer, limit: int) -> EncodedPairs:
        return EncodedPairs(examples, tokenizer, limit)

    def judge(self, encoded: EncodedPairs, scores: Scores) -> Judged:
        examples = encoded.examples
        chosen = np.asarray([int(np.argmax(each)) for each in scores])
        truth = np.asarray([example.label for example in examples])
        figures = accuracies(chosen == truth, [example.part for example in examples])
        if len(self.labels) == 2:
            figures["f1"] = binary_f1(chosen, truth)
        return Judged(
            figures,
            predictions=[
                {
                    "id": example.id,
                    "prediction": self.labels[choice],
                    "scores": each.tolist(),
                    "truth": self.labels[example.label],
                }
                | ({} if example.part is None else {"part": example.part})
                for example, choice, each in zip(examples, chosen, scores, strict=True)
            ],
        )


class Mnli(_Pairs):
    name = "mnli"
    summary = "MNLI, whether one sentence follows from another: accuracy, matched and mismatched"
    labels = MNLI_LABELS

    def read(self, path: Path, *, training: bool) -> Read:
        return Read(*read_mnli(path, training=training))


class Qqp(_Pairs):
    name = "qqp"
    summary = "QQP, whether two questions ask the same: accuracy, and F1 of duplicates"
    labels = QQP_LABELS

    def read(self, path: Path, *, training: bool) -> Read:
        return Read(*read_qqp(path, training=training))


class Squad(Task[EncodedSpans]):
    """Answers that are spans of a text. impossible: whether some questions have none."""

    name = "squad_v1"
    summary = "SQuAD 1.1, answers that are pieces of a text: F1 and exact match"
    impossible = False

    def read(self, path: Path, *, training: bool) -> Read:
        return Read(read_squad(path, impossible=self.impossible))

    def encode(self, examples: Sequence[SpanExample], tokenizer: Tokenizer, limit: int) -> EncodedSpans:
        return EncodedSpans(examples, tokenizer, limit)

    def judge(self, encoded: EncodedSpans, scores: Scores) -> Judged:
        found = encoded.predict([each[:, 0] for each in scores], [each[:, 1] for each in scores])
        examples, texts = encoded.examples, [each.text for each in found]
        differences = np.asarray([each.null_score - each.score for each in found])
        figures, values = span_figures(examples, texts, differences if self.impossible else None)
        predictions = []
        for example, each, difference in zip(examples, found, differences.tolist(), strict=True):
            row: dict[str, Any] = {"id": example.id, "prediction": each.text, "start": each.start}
            if self.impossible:
                # As the official script has it: "" says that there is no answer.
                row |= {"span": each.text, "prediction": "" if difference > 0 else each.text}
                row["no_answer_score"] = difference
            truth = [answer.text for answer in example.answers]
            predictions.append({**row, "scores": [each.score, each.null_score], "truth": truth})
        return Judged(figures, values, predictions)


class Squad2(Squad):
    name = "squad_v2"
    summary = "SQuAD 2.0, the same with questions that have no answer: F1 and exact match"
    impossible = True


TASKS: dict[str, Task[Any]] = {task.name: task for task in (Race(), Mnli(), Qqp(), Squad(), Squad2())}
"""By name."""

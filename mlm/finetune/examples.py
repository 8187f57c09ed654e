"""Examples of the fine-tuning tasks, as their files have them, and how damage in a file is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlm.errors import ConfigError, Problem

SHOWN_PROBLEMS = 20
"""Damaged records that a refusal names; more are counted."""


@dataclass(frozen=True)
class ChoiceExample:
    """A question about a passage with options, of which options[answer] is right.

    part: what the accuracy is split by (middle or high school), None where the file does not say.
    """

    id: str
    passage: str
    question: str
    options: tuple[str, ...]
    answer: int
    part: str | None = None


@dataclass(frozen=True)
class PairExample:
    """Two texts and the number of their class. part: which of several development files it is from."""

    id: str
    first: str
    second: str
    label: int
    part: str | None = None


@dataclass(frozen=True)
class Answer:
    """A piece of a context: context[start : start + len(text)] == text."""

    text: str
    start: int


@dataclass(frozen=True)
class SpanExample:
    """A question about a context, with accepted answers; none where the context does not answer it."""

    id: str
    context: str
    question: str
    answers: tuple[Answer, ...]
    part: str | None = None


@dataclass
class Damage:
    """Collects what is wrong with the records of a file, so that all of it is said at once."""

    problems: list[Problem] = field(default_factory=list)

    def add(self, where: str, wrong: str, remedy: str) -> None:
        self.problems.append(Problem(where, wrong, remedy))

    def refuse(self, source: str) -> None:
        """Raises ConfigError with the problems, if there are any; source: the file or folder, for a count."""
        if not self.problems:
            return
        shown, rest = self.problems[:SHOWN_PROBLEMS], len(self.problems) - SHOWN_PROBLEMS
        if rest > 0:
            remedy = "mend these first, or fetch the data again"
            shown.append(Problem(source, f"has {rest:,} more damaged records", remedy))
        raise ConfigError(shown)


def is_text(value: object) -> bool:
    """Whether a JSON value is a text that has something in it and can be written as UTF-8."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def parts_of(examples: Sequence[ChoiceExample | PairExample | SpanExample]) -> list[str]:
    """The parts that occur, in the order of their first examples."""
    return list(dict.fromkeys(example.part for example in examples if example.part is not None))

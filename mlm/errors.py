"""The errors a user can meet: each names where, the value, what is required and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with what the user asked for.

    where: the key or file, with its value (`model.num_heads=15`); wrong: what is required and not
    met (`is not a multiple of tp=4`); remedy: what to type instead (`use tp=1, 3, 5 or 15`).
    """

    where: str
    wrong: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where} {self.wrong}: {self.remedy}"


class MlmError(Exception):
    """Base of the errors below; the message is one sentence in the grammar of Problem."""


class ConfigError(MlmError):
    """The configuration cannot be run. Carries every problem found, not only the first."""

    def __init__(self, problems: list[Problem] | Problem):
        self.problems = [problems] if isinstance(problems, Problem) else problems
        super().__init__("; ".join(str(p) for p in self.problems))


class DataError(MlmError):
    """A dataset, text or tokenizer file is not what it has to be."""


class CheckpointError(MlmError):
    """A checkpoint cannot be written or read."""


class LaunchError(MlmError):
    """Workers cannot be started or joined."""


class HangError(MlmError):
    """A collective that some rank has not come to in time."""


class TrainError(MlmError):
    """Training cannot go on, for instance because the loss is no longer a number."""


class DivergedError(TrainError):
    """The loss is no longer a number, and the same steps give the same again: the recipe is unstable."""

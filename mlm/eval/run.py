"""Evaluation, the same for mlm-eval and for training: tasks to segments, scores, and rows of figures."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mlm.data.cache import sha256_file
from mlm.data.tokenizers import Tokenizer
from mlm.eval.checks import task_files
from mlm.eval.requests import Scores, Segment, Variant
from mlm.eval.score import default_batch_tokens, score
from mlm.eval.tasks import TASKS
from mlm.parallel.mesh import Mesh


@dataclass(frozen=True)
class DataFileRead:
    """A data file that went into a result. published: whether it is, byte for byte, the one of that name."""

    role: str
    path: str
    size: int
    sha256: str
    published: bool


@dataclass(frozen=True)
class PreparedTask:
    """A task's text as segments for one tokenizer and one context; reused for each evaluation of a run.

    segments: those of all variants, each once; places: of each variant, where its segments are among them.
    """

    name: str
    files: list[DataFileRead]
    context: int
    limit: int | None
    variants: list[Variant]
    segments: list[Segment]
    places: list[NDArray[np.int64]]

    @property
    def tokens(self) -> int:
        """Tokens that the model reads, each window's anew."""
        return sum(len(segment.tokens) - 1 for segment in self.segments)


@dataclass(frozen=True)
class Row:
    """One variant's result. figures: every figure and every count that went into one, by name."""

    variant: str
    protocol: str
    is_paper_protocol: bool
    headline: str
    value: float
    figures: dict[str, Any]


@dataclass(frozen=True)
class TaskResult:
    """One task's rows. context: tokens the model sees at once; limit: None, or only the first so many."""

    task: str
    context: int
    limit: int | None
    files: list[DataFileRead]
    seconds: float
    tokens: int
    """Tokens the model has read, each window's anew."""
    rows: list[Row] = field(default_factory=list)


def prepare_task(
    name: str, task_paths: Mapping[str, str], tokenizer: Tokenizer, *, context: int, limit: int | None
) -> PreparedTask:
    """Read the task's files and cut them into segments; the same on every rank.

    Raises ConfigError when a file is missing, DataError when one is not what it has to be.
    """
    task = TASKS[name]()
    paths = task_files(name, task_paths)
    published = {file.role: file.sha256 for file in task.default_files}
    files = []
    for role, path in paths.items():
        sha256 = sha256_file(path)
        files.append(
            DataFileRead(role, str(path), path.stat().st_size, sha256, sha256 == published.get(role))
        )
    variants = task.variants(paths, tokenizer, context, limit)
    return PreparedTask(name, files, context, limit, variants, *_merged(variants))


def evaluate(
    model: nn.Module,
    tasks: Sequence[PreparedTask],
    *,
    vocab_size: int,
    batch_tokens: int | None,
    mesh: Mesh,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    progress: Callable[[str, int, int], None] | None = None,
) -> list[TaskResult]:
    """Score every task's variants and summarise them, equal on every rank; collective over all ranks.

    Leaves the model and all random numbers as they were. batch_tokens: None: what suits the device.
    progress(task, done, total): tokens of all tasks.
    """
    total, before, results = sum(task.tokens for task in tasks), 0, []
    for task in tasks:

        def report(done: int, _: int, name: str = task.name, start: int = before) -> None:
            if progress is not None:
                progress(name, start + done, total)

        began = time.perf_counter()
        scores = score(
            model,
            task.segments,
            seq_length=task.context,
            vocab_size=vocab_size,
            batch_tokens=batch_tokens or default_batch_tokens(device),
            mesh=mesh,
            device=device,
            autocast=autocast,
            progress=report,
        )
        before += task.tokens
        rows = [_row(v, _picked(scores, place)) for v, place in zip(task.variants, task.places, strict=True)]
        seconds = time.perf_counter() - began
        results.append(
            TaskResult(task.name, task.context, task.limit, task.files, seconds, task.tokens, rows)
        )
    return results


def _merged(variants: Sequence[Variant]) -> tuple[list[Segment], list[NDArray[np.int64]]]:
    """The variants' segments without repetitions, so that what they share is computed once."""
    index: dict[tuple[bytes, int], int] = {}
    segments: list[Segment] = []
    places = []
    for variant in variants:
        place = np.empty(len(variant.segments), dtype=np.int64)
        for number, segment in enumerate(variant.segments):
            key = hashlib.blake2b(segment.tokens.tobytes(), digest_size=16).digest(), segment.scored
            place[number] = index.setdefault(key, len(segments))
            if place[number] == len(segments):
                segments.append(segment)
        places.append(place)
    return segments, places


def _picked(scores: Scores, place: NDArray[np.int64]) -> Scores:
    return Scores(scores.nll[place], scores.all_greedy[place], scores.last_greedy[place])


def _row(variant: Variant, scores: Scores) -> Row:
    figures = variant.summarise(scores)
    value = figures[variant.headline]
    return Row(variant.name, variant.protocol, variant.is_paper, variant.headline, value, figures)

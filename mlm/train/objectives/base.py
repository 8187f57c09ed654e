"""What the trainer asks of an objective, whatever is trained for. The objectives stand beside this file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.config.schema import TrainConfig
from mlm.data.prepared import PreparedData
from mlm.parallel.mesh import Mesh

SAMPLE_TEMPERATURE = 0.8
"""Of a sample of text at the end: a little below 1, where a small model's text reads best."""


@dataclass(frozen=True)
class Setting:
    """Where an objective is at work: one rank of a run, before there is a model."""

    config: TrainConfig
    run_dir: Path
    data: PreparedData
    mesh: Mesh
    device: torch.device
    autocast: Callable[[], AbstractContextManager[object]]

    def micro_batches_of(self, values: NDArray[Any]) -> list[Tensor]:
        """The rows of a step's array on the device, micro_batch_size each but for the last."""
        on_device = torch.from_numpy(values).to(self.device, non_blocking=True)
        return list(on_device.split(self.config.train.micro_batch_size))


class MicroBatch(Protocol):
    """Samples of one forward and backward pass, on the device."""

    @property
    def samples(self) -> int:
        """How many they are."""

    def loss(self, model: nn.Module, factor: float | Tensor) -> tuple[Tensor, Tensor | None]:
        """Forward: factor times these samples' part of the global batch's loss, and of its figures.

        The parts of all micro batches of a step, on all dp ranks, add up to the loss, a mean, and to the
        figures. Goes into the weights of the summands, not onto their sum. Waits for nothing. Results: a
        scalar, equal on all tp ranks, and float64 [figures], detached; None without figures.
        """


@dataclass(frozen=True)
class ValidationResult:
    """What a validation found, for metrics and people."""

    loss: float
    values: dict[str, float]
    """What metrics.jsonl gets, the loss among it."""
    said: str
    """The same in words: "loss 4.1234 nats/token (1,024 tokens)"."""
    score: tuple[str, float] | None = None
    """Name and value of the figure that the best checkpoint has the largest of; None: none is kept for it."""
    predictions: Sequence[Mapping[str, Any]] | None = None
    """Of each held-out sample what the model said, JSON-ready; None: nothing to keep."""


class Objective(Protocol):
    """What a model is trained for. Built by mlm.train.objectives.build_objective from a Setting."""

    figures: Sequence[str]
    """Names in metrics.jsonl of the numbers beside the loss, in the order of MicroBatch.loss."""

    @property
    def sequences(self) -> tuple[int, int]:
        """(Sequences of a step of the whole job, their length): what FLOPs are counted by."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens that the whole job reads in a step: what throughput counts."""

    def said(self, figures: Sequence[float]) -> str:
        """A step's figures in words, to stand behind its loss; empty without any."""

    def micro_batches(self, numbers: NDArray[np.int64]) -> Sequence[MicroBatch]:
        """The samples of these numbers, a dp rank's of one step, as micro batches; collective over dp."""

    def validate(self, model: nn.Module, samples: int | None) -> ValidationResult | None:
        """Score the first `samples` held-out samples (None: all); None when nothing is held out.

        model: the bare module. Independent of batch and layout, draws no random number and leaves the model
        in the mode that it is in. Collective over all ranks.
        """

    def rows(self) -> list[tuple[str, str]]:
        """Lines of the start-up table: the data, and what a model that knows nothing would reach."""

    def sample_text(self, model: nn.Module) -> str | None:
        """Text that the model writes, shown at the end; None where it cannot write. Collective over tp."""

    def conclude(self, final: ValidationResult | None) -> tuple[list[str], dict[str, Any]]:
        """Last words on the validation at the end (None: there was none), and entries of summary.json."""

"""Loss on the validation split, independent of batch size and layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from mlm.data.samples import ValidationWindows
from mlm.parallel.collectives import all_reduced
from mlm.parallel.mesh import Mesh


@dataclass(frozen=True)
class ValidationResult:
    """Sum of nll in nats over `tokens` scored tokens."""

    nll: float
    tokens: int

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(loss) by token; inf where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


@torch.no_grad()
def validate(
    model: nn.Module,
    windows: ValidationWindows,
    *,
    samples: int | None,
    micro_batch_size: int,
    mesh: Mesh,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
) -> ValidationResult:
    """Score the first `samples` windows (None: all), each token once; the sum does not depend on batching.

    model: the bare module, not its data-parallel wrapper. Dropout is off and no random number is drawn, so
    training goes on as if nothing had happened.
    """
    was_training = model.training
    model.eval()
    count = len(windows) if samples is None else min(samples, len(windows))
    batch = micro_batch_size * mesh.dp.size
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # nll, scored tokens
    for start in range(0, count, batch):
        # Windows at or past `count` count nothing: every rank runs the same number of passes.
        first = start + mesh.dp.rank * micro_batch_size
        ids_array, mask_array = windows.batch(range(first, first + micro_batch_size))
        ids = torch.from_numpy(ids_array).to(device)  # [micro_batch, seq + 1]
        mask = torch.from_numpy(mask_array)  # [micro_batch, seq]
        mask[max(0, count - first) :] = False
        weights = mask.to(device, torch.float64)
        with autocast():
            nll = model(ids[:, :-1], ids[:, 1:], weights)
        sums += torch.stack((nll.double(), weights.sum()))
    nll_sum, tokens = all_reduced(sums, mesh.dp).tolist()
    model.train(was_training)
    return ValidationResult(nll_sum, round(tokens))

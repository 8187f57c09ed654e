"""Loss on the validation splits, independent of batch size and layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from mlm.data.blend import Blend
from mlm.data.reading import ValidationSet
from mlm.data.samples import ValidationWindows
from mlm.parallel.collectives import all_reduced
from mlm.parallel.mesh import Mesh
from mlm.train.packing import WHOLE, Packing


@dataclass(frozen=True)
class ValidationResult:
    """Sum of nll in nats over `tokens` scored tokens.

    parts: of a blend, the result of each dataset with its weight; the loss is then their weighted mean, an
    estimate of the loss on what is trained on, however much of each dataset is held out.
    """

    nll: float
    tokens: int
    parts: tuple[tuple[str, float, ValidationResult], ...] = ()

    @property
    def loss(self) -> float:
        """Nats per token."""
        if self.parts:
            return sum(weight * part.loss for _, weight, part in self.parts)
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(loss) by token; inf where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    def values(self) -> dict[str, float]:
        """What is written to the metrics: loss, tokens, nll, and of a blend loss_NAME of each dataset."""
        values: dict[str, float] = {"loss": self.loss, "tokens": self.tokens, "nll": self.nll}
        return values | {f"loss_{name}": part.loss for name, _, part in self.parts}


def validate_all(
    model: nn.Module,
    sets: Sequence[ValidationSet],
    *,
    samples: int | None,
    micro_batch_size: int,
    mesh: Mesh,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    reset_positions: bool = False,
    reset_attention: bool = False,
) -> ValidationResult:
    """`validate` on each dataset; `samples` are shared out by weight, one at least for each."""
    counts = (
        [samples] if samples is None or len(sets) == 1 else Blend([s.weight for s in sets]).counts(samples)
    )
    results = []
    for index, held_out in enumerate(sets):
        count = counts[index % len(counts)]
        result = validate(
            model,
            held_out.windows,
            samples=count if count is None else max(1, count),
            micro_batch_size=micro_batch_size,
            mesh=mesh,
            device=device,
            autocast=autocast,
            reset_positions=reset_positions,
            reset_attention=reset_attention,
        )
        results.append((held_out.name, held_out.weight, result))
    if len(results) == 1:
        return results[0][2]
    nll, tokens = (sum(getattr(result, of) for *_, result in results) for of in ("nll", "tokens"))
    return ValidationResult(nll, tokens, tuple(results))


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
    reset_positions: bool = False,
    reset_attention: bool = False,
) -> ValidationResult:
    """Score the first `samples` windows (None: all), each token once; the sum does not depend on batching.

    model: the bare module, not its data-parallel wrapper. Dropout is off and no random number is drawn, so
    training goes on as if nothing had happened. reset_*: documents of a window as in training.
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
        packing = WHOLE
        if reset_positions or reset_attention:
            starts = torch.from_numpy(windows.document_starts(range(first, first + micro_batch_size)))
            packing = Packing.of(
                starts.to(device), reset_positions=reset_positions, reset_attention=reset_attention
            )
        with autocast():
            nll = model(ids[:, :-1], ids[:, 1:], weights, packing.positions, packing.first_key)
        sums += torch.stack((nll.double(), weights.sum()))
    nll_sum, scored = all_reduced(sums, mesh.dp).tolist()
    model.train(was_training)
    return ValidationResult(nll_sum, round(scored))

"""Sentence pairs with masked words as a model is trained and scored on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.data.masked_lm import MaskedBatch, MaskedValidation
from mlm.train.objectives.base import Setting, ValidationResult
from mlm.train.objectives.next_token import perplexity

INPUTS = tuple(field.name for field in fields(MaskedBatch))
"""What BertForPretraining takes, by the names that it and MaskedBatch have for it."""


@dataclass(frozen=True)
class PairBatch:
    """A micro batch of sentence pairs."""

    inputs: dict[str, Tensor]
    """Those of INPUTS, on the device."""
    global_masked: Tensor
    """Masked tokens of the global batch, a float64 scalar of at least 1."""
    global_samples: int

    @property
    def samples(self) -> int:
        return len(self.inputs["ids"])

    def loss(self, model: nn.Module, factor: float | Tensor) -> tuple[Tensor, Tensor]:
        """As MicroBatch.loss: a mean over the masked tokens and one over the samples, added."""
        weights = {
            "masked_weights": self.inputs["masked_weights"] * (factor / self.global_masked),
            "order_weights": self.inputs["order_weights"] * (factor / self.global_samples),
        }
        result: tuple[Tensor, Tensor] = model(**(self.inputs | weights))
        return result


def pair_batches(
    setting: Setting, batch: MaskedBatch, global_masked: Tensor, global_samples: int
) -> list[PairBatch]:
    """The samples as micro batches; global_masked, global_samples: of all dp ranks."""
    # Each sample has a masked token; what has none, if ever, must not turn a loss into a NaN.
    total = global_masked.clamp(min=1.0)
    columns = [setting.micro_batches_of(getattr(batch, name)) for name in INPUTS]
    return [
        PairBatch(dict(zip(INPUTS, parts, strict=True)), total, global_samples)
        for parts in zip(*columns, strict=True)
    ]


@dataclass(frozen=True)
class PairScorer:
    """Scores held-out pairs: what `validate` calls."""

    device: torch.device
    autocast: Callable[[], AbstractContextManager[object]]

    def __call__(
        self,
        model: nn.Module,
        samples: MaskedValidation,
        known: Tensor,
        numbers: NDArray[np.int64],
        count: int,
    ) -> Tensor:
        """Sums over the samples below count, float64 [8], in the order of Sums.

        known: ln of each token's frequency in the training text, [vocab_size].
        """
        batch, counted = samples.batch(numbers), numbers < count
        arrays = {name: getattr(batch, name) for name in INPUTS}
        arrays["masked_weights"] = batch.masked_weights * counted[:, None]  # [n, K]
        arrays["order_weights"] = batch.order_weights * counted  # [n]
        inputs = {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}
        with self.autocast():
            _, figures = model(**inputs)
        targets, weights = inputs["masked_ids"], inputs["masked_weights"]
        frequent = (targets == known.argmax()).double()
        # Where the weight is 0 stands a token that may never be met, of frequency 0.
        nll = torch.where(weights > 0, -known[targets], 0.0)
        alone = torch.stack(((nll * weights).sum(), (frequent * weights).sum()))
        return torch.cat((figures, torch.stack((weights.sum(), inputs["order_weights"].sum())), alone))


@dataclass(frozen=True)
class Sums:
    """Of a dataset's held-out pairs, sums over masked tokens and over samples."""

    masked_nll: float
    order_nll: float
    masked_right: float
    order_right: float
    masked: float
    samples: float
    unigram_nll: float
    """Of the masked tokens, had each token the probability of its frequency in the training text."""
    unigram_right: float
    """Masked tokens that are the most frequent one of the training text."""

    def means(self) -> dict[str, float]:
        """The figures by name; loss is the one that is trained on."""
        masked, order = self.masked_nll / self.masked, self.order_nll / self.samples
        return {
            "loss": masked + order,
            "masked_loss": masked,
            "masked_accuracy": self.masked_right / self.masked,
            "order_loss": order,
            "order_accuracy": self.order_right / self.samples,
            "unigram_loss": self.unigram_nll / self.masked,
            "unigram_accuracy": self.unigram_right / self.masked,
        }


def pair_result(sets: Sequence[tuple[str, float]], sums: Sequence[Sums]) -> ValidationResult:
    """The figures of the splits (name, weight): of a blend the mean of the datasets by weight."""
    parts = [each.means() for each in sums]
    values = {
        name: sum(weight * part[name] for (_, weight), part in zip(sets, parts, strict=True))
        for name in parts[0]
    }
    masked, samples = round(sum(each.masked for each in sums)), round(sum(each.samples for each in sums))
    said = (
        f"loss {values['loss']:.4f} = masked {values['masked_loss']:.4f} (perplexity "
        f"{perplexity(values['masked_loss']):,.2f}, {values['masked_accuracy']:.1%} right) + order "
        f"{values['order_loss']:.4f} ({values['order_accuracy']:.1%} right), {masked:,} tokens masked in "
        f"{samples:,} samples"
    )
    values |= {"masked_tokens": masked, "samples": samples}
    if len(sets) > 1:
        by_name = {f"loss_{name}": part["loss"] for (name, _), part in zip(sets, parts, strict=True)}
        values |= by_name
        said += "".join(f", {name[5:]} {loss:.4f}" for name, loss in by_name.items())
    return ValidationResult(values["loss"], values, said)

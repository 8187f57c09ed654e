"""Predicting each next token: the objective of GPT-2 (paper, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.data.reading import ValidationSet, prompt_ids, training_samples, validation_sets
from mlm.data.samples import Samples, ValidationWindows
from mlm.train.objectives.base import SAMPLE_TEMPERATURE, Setting, ValidationResult
from mlm.train.packing import WHOLE, Packing
from mlm.train.tables import plain_table, rendered
from mlm.train.validate import HeldOut, validate


@dataclass(frozen=True)
class TokenBatch:
    """A micro batch of ids [micro_batch, seq + 1], every token but the first a target of equal weight."""

    ids: Tensor
    global_tokens: int
    """Targets of the global batch."""
    packing: Packing = WHOLE
    """The documents in the samples."""

    @property
    def samples(self) -> int:
        return len(self.ids)

    def loss(self, model: nn.Module, factor: float | Tensor) -> tuple[Tensor, None]:
        """As MicroBatch.loss."""
        inputs, targets = self.ids[:, :-1], self.ids[:, 1:]  # [micro_batch, seq]
        weights = torch.ones(targets.shape, dtype=torch.float64, device=self.ids.device)
        weights *= factor / self.global_tokens
        return model(inputs, targets, weights, self.packing.positions, self.packing.first_key), None


@dataclass(frozen=True)
class TokenScorer:
    """Scores validation windows as training scores its samples: what `validate` calls."""

    device: torch.device
    autocast: Callable[[], AbstractContextManager[object]]
    reset_positions: bool = False
    reset_attention: bool = False

    def __call__(
        self, model: nn.Module, windows: ValidationWindows, numbers: NDArray[np.int64], count: int
    ) -> Tensor:
        """Sums over the windows below count: (nll in nats, scored tokens), float64 [2]."""
        ids_array, mask_array = windows.batch(numbers)
        ids = torch.from_numpy(ids_array).to(self.device)  # [n, seq + 1]
        weights = torch.from_numpy(mask_array & (numbers < count)[:, None]).to(self.device, torch.float64)
        packing = WHOLE
        if self.reset_positions or self.reset_attention:
            starts = torch.from_numpy(windows.document_starts(numbers)).to(self.device)
            packing = Packing.of(
                starts, reset_positions=self.reset_positions, reset_attention=self.reset_attention
            )
        with self.autocast():
            nll = model(ids[:, :-1], ids[:, 1:], weights, packing.positions, packing.first_key)
        return torch.stack((nll.double(), weights.sum()))


class NextToken:
    """As Objective. The loss is the mean nll of the tokens of the global batch."""

    figures: Sequence[str] = ()

    def __init__(self, setting: Setting):
        self.setting = setting
        data, config = setting.config.data, setting.config
        self.resets_at_documents = data.reset_positions or data.reset_attention
        self.train: Samples = training_samples(
            setting.data,
            config.seed,
            shuffle_documents=data.shuffle_documents,
            packed=self.resets_at_documents,
        )
        self.valid = validation_sets(setting.data, packed=self.resets_at_documents)

    @property
    def sequences(self) -> tuple[int, int]:
        """As Objective.sequences."""
        return self.setting.config.train.global_batch_size, self.setting.config.model.seq_length

    @property
    def tokens_per_step(self) -> int:
        """As Objective.tokens_per_step."""
        return self.setting.config.train.global_batch_size * self.setting.config.model.seq_length

    def said(self, figures: Sequence[float]) -> str:
        """As Objective.said."""
        return ""

    def micro_batches(self, numbers: NDArray[np.int64]) -> list[TokenBatch]:
        """As Objective.micro_batches; without resets at documents every sample is one stretch of text."""
        split, tokens = self.setting.micro_batches_of, self.tokens_per_step
        if not self.resets_at_documents:
            return [TokenBatch(ids, tokens) for ids in split(self.train.batch(numbers))]
        ids_array, starts_array = self.train.packed(numbers)
        data = self.setting.config.data
        return [
            TokenBatch(
                ids,
                tokens,
                Packing.of(
                    starts, reset_positions=data.reset_positions, reset_attention=data.reset_attention
                ),
            )
            for ids, starts in zip(split(ids_array), split(starts_array), strict=True)
        ]

    def validate(self, model: nn.Module, samples: int | None) -> ValidationResult | None:
        """As Objective.validate; each token but the first is scored once."""
        setting, data = self.setting, self.setting.config.data
        if not self.valid:
            return None
        scorer = TokenScorer(setting.device, setting.autocast, data.reset_positions, data.reset_attention)
        held_out = [HeldOut(v.weight, len(v.windows), partial(scorer, model, v.windows)) for v in self.valid]
        sums = validate(
            model,
            held_out,
            samples=samples,
            micro_batch_size=setting.config.train.micro_batch_size,
            mesh=setting.mesh,
        )
        return token_result(self.valid, sums)

    def rows(self) -> list[tuple[str, str]]:
        """As Objective.rows."""
        data, config = self.setting.data, self.setting.config
        rows = []
        if self.resets_at_documents:
            resets = [name for name in ("positions", "attention") if getattr(config.data, f"reset_{name}")]
            rows.append(("documents", f"{' and '.join(resets)} begin anew at each document"))
        rows.append(("ln(V)", f"{data.ln_vocab:.4f} nats per token, a model that knows nothing"))
        if data.entropies:
            e = data.entropies
            entropies = f"unigram {e['unigram']:.2f}, bigram {e['bigram']:.2f}, trigram {e['trigram']:.2f}"
            rows.append(("text entropies", f"{entropies} nats per character"))
        return rows

    def sample_text(self, model: nn.Module) -> str | None:
        """As Objective.sample_text: what follows the beginning of the validation text."""
        setting, count = self.setting, self.setting.config.train.sample_tokens
        if count == 0:
            return None
        from mlm.data.tokenizers import load_tokenizer
        from mlm.generate.engine import Engine, Limits, Text
        from mlm.generate.sampling import Sampling

        tokenizer = load_tokenizer(setting.data.tokenizer, setting.run_dir)
        engine = Engine(
            model=model,
            seq_length=setting.config.model.seq_length,
            vocab_size=min(setting.config.model.vocab_size, tokenizer.vocab_size),
            tp=setting.mesh.tp,
            device=setting.device,
            autocast=setting.autocast,
        )
        # Through ends of documents, so that a sample has its length.
        limits = Limits(new_tokens=count, slides=True)
        sampling = Sampling(temperature=SAMPLE_TEMPERATURE, seed=setting.config.seed)
        (text,) = engine.run([Text(prompt_ids(setting.data).tolist())], sampling, limits)
        return tokenizer.decode(text.ids)

    def conclude(self, final: ValidationResult | None) -> tuple[list[str], dict[str, Any]]:
        """As Objective.conclude: the loss beside what simpler knowledge of the text would reach."""
        data, vocab_size = self.setting.data, self.setting.config.model.vocab_size
        if final is None:
            return [], {"valid_tokens": None, "valid_nats_per_character": None}
        tokens = int(final.values["tokens"])
        per_character = None
        # On the scale of the text's entropies only when all of it was scored.
        if data.valid_characters_per_token is not None and tokens == data.tokens["valid"] - 1:
            per_character = final.loss / data.valid_characters_per_token
        lines = [
            f"final validation loss {final.loss:.4f} nats/token, perplexity {perplexity(final.loss):,.2f} "
            f"({tokens:,} tokens; ln(V) = {data.ln_vocab:.4f} for V = {vocab_size:,})"
        ]
        if per_character is not None and data.entropies:
            lines.append(_beside_entropies(per_character, data.entropies))
        return lines, {"valid_tokens": tokens, "valid_nats_per_character": per_character}


def token_result(sets: Sequence[ValidationSet], sums: Sequence[Sequence[float]]) -> ValidationResult:
    """The loss of the splits from their sums (nll, tokens): of a blend the mean of the datasets by weight.

    Such a mean estimates the loss on what is trained on, however much of each dataset is held out.
    """
    losses = {held_out.name: nll / tokens for held_out, (nll, tokens) in zip(sets, sums, strict=True)}
    loss = sum(held_out.weight * losses[held_out.name] for held_out in sets)
    nll, tokens = (sum(column) for column in zip(*sums, strict=True))
    values = {"loss": loss, "tokens": round(tokens), "nll": nll}
    said = f"loss {loss:.4f} nats/token ({round(tokens):,} tokens)"
    if len(sets) > 1:
        values |= {f"loss_{name}": each for name, each in losses.items()}
        said += "".join(f", {name} {each:.4f}" for name, each in losses.items())
    return ValidationResult(loss, values, said)


def perplexity(loss: float) -> float:
    """exp(loss); inf where that overflows."""
    return math.exp(loss) if loss < 700 else math.inf


_ENTROPY_LABELS = {
    "alphabet": "any character equally likely",
    "unigram": "unigram entropy of the text",
    "bigram": "bigram entropy of the text",
    "trigram": "trigram entropy of the text",
}


def _beside_entropies(per_character: float, entropies: dict[str, float]) -> str:
    table = plain_table("nats per character", "")
    for name, label in _ENTROPY_LABELS.items():
        table.add_row(label, f"{entropies[name]:.2f}")
    table.add_row("this model, validation text", f"{per_character:.4f}", style="bold")
    return rendered(table)

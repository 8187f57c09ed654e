"""Masked tokens and the order of two segments: the objective of BERT (paper, section 4.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.data.masked_lm import MaskedSamples, masked_samples, masked_validation_sets, masking_of
from mlm.data.unigram import unigram
from mlm.parallel.collectives import all_reduced
from mlm.train.objectives.base import Setting, ValidationResult
from mlm.train.objectives.next_token import perplexity
from mlm.train.objectives.pairs import PairBatch, PairScorer, Sums, pair_batches, pair_result
from mlm.train.validate import HeldOut, validate


class MaskedLm:
    """As Objective. The loss is the mean nll of the masked tokens of the global batch and that of the orders
    of its samples, added.
    """

    figures: Sequence[str] = ("masked_loss", "order_loss", "masked_accuracy", "order_accuracy")

    def __init__(self, setting: Setting):
        tokenizer = setting.data.tokenizer
        if "path" in tokenizer:  # of a run's folder, to which it is relative
            tokenizer = {**tokenizer, "path": str(setting.run_dir / tokenizer["path"])}
        self.setting, rule = setting, setting.config.objective
        self.data = replace(setting.data, tokenizer=tokenizer)
        self.train: MaskedSamples = masked_samples(self.data, rule, setting.config.seed)
        self.valid = masked_validation_sets(self.data, rule)
        self.masking = masking_of(self.data, rule)
        self._known: list[Tensor] | None = None

    @property
    def sequences(self) -> tuple[int, int]:
        """As Objective.sequences."""
        return self.setting.config.train.global_batch_size, self.setting.config.model.seq_length

    @property
    def tokens_per_step(self) -> int:
        """As Objective.tokens_per_step, padding among them."""
        return self.setting.config.train.global_batch_size * self.setting.config.model.seq_length

    def said(self, figures: Sequence[float]) -> str:
        """As Objective.said."""
        masked, order, masked_right, order_right = figures
        return f"masked {masked:.4f} ({masked_right:.1%} right)  order {order:.4f} ({order_right:.1%} right)"

    def micro_batches(self, numbers: NDArray[np.int64]) -> list[PairBatch]:
        """As Objective.micro_batches; moves one element over dp."""
        batch = self.train.batch(numbers)
        total = torch.from_numpy(batch.masked_weights.sum(keepdims=True)).to(self.setting.device)
        total = all_reduced(total.view(()), self.setting.mesh.dp)
        return pair_batches(self.setting, batch, total, self.setting.config.train.global_batch_size)

    def validate(self, model: nn.Module, samples: int | None) -> ValidationResult | None:
        """As Objective.validate: each pair cut and masked the same way every time."""
        setting = self.setting
        if not self.valid:
            return None
        scorer = PairScorer(setting.device, setting.autocast)
        held_out = [
            HeldOut(each.weight, len(each.samples), partial(scorer, model, each.samples, known))
            for each, known in zip(self.valid, self._frequencies(), strict=True)
        ]
        sums = validate(
            model,
            held_out,
            samples=samples,
            micro_batch_size=setting.config.train.micro_batch_size,
            mesh=setting.mesh,
        )
        return pair_result([(each.name, each.weight) for each in self.valid], [Sums(*row) for row in sums])

    def rows(self) -> list[tuple[str, str]]:
        """As Objective.rows."""
        rule, setting = self.setting.config.objective, self.setting
        chunks = [each.chunks["train"] for each in setting.data.datasets if each.chunks is not None]
        documents, single, cut = (
            sum(each[name] for each in chunks) for name in ("documents", "single", "cut")
        )
        kept = 1 - rule.mask_share - rule.random_share
        return [
            (
                "pairs",
                f"two segments of a document, {cut:,} cut to fit; {single:,} of {documents:,} documents have "
                "one sentence and give none",
            ),
            (
                "masking",
                f"{rule.mask_rate:.4g} of the tokens in runs of 1 to {rule.max_ngram} words, at most "
                f"{self.masking.predictions} of a sample: {rule.mask_share:.4g} [MASK], "
                f"{rule.random_share:.4g} random, {kept:.4g} as they are",
            ),
            (
                "ln(V), ln 2",
                f"{setting.data.ln_vocab:.4f} nats per masked token and {math.log(2):.4f} per order of two "
                "segments, a model that knows nothing",
            ),
        ]

    def sample_text(self, model: nn.Module) -> str | None:
        """None: it fills gaps and continues nothing."""
        return None

    def conclude(self, final: ValidationResult | None) -> tuple[list[str], dict[str, Any]]:
        """As Objective.conclude: beside what the frequencies of tokens, and tossing a coin, would reach."""
        if final is None:
            return [], {}
        v = final.values
        lines = [
            f"held-out masked tokens: {v['masked_accuracy']:.2%} right, perplexity "
            f"{perplexity(v['masked_loss']):,.2f}; by the frequencies of the training text alone "
            f"{v['unigram_accuracy']:.2%}, {perplexity(v['unigram_loss']):,.2f} "
            f"({int(v['masked_tokens']):,} tokens)",
            f"held-out order of segments: {v['order_accuracy']:.2%} right; by tossing a coin 50 % "
            f"({int(v['samples']):,} samples)",
        ]
        return lines, {f"valid_{name}": value for name, value in v.items() if name != "loss"}

    def _frequencies(self) -> list[Tensor]:
        """ln of each token's frequency in the training text of each validation set's dataset."""
        if self._known is None:
            by_name = {dataset.name: dataset for dataset in self.data.datasets}
            ordinary = self.masking.vocabulary.ordinary
            self._known = [
                torch.from_numpy(unigram(by_name[each.name], ordinary, self.setting.config.model.vocab_size))
                for each in self.valid
            ]
            self._known = [known.to(self.setting.device) for known in self._known]
        return self._known

"""The numbers each field may take, one row per numeric field, so that none is forgotten."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Finite numbers from low, included unless open_low, to below high, included with closed_high."""

    low: float
    high: float = math.inf
    open_low: bool = False
    closed_high: bool = False

    def __contains__(self, value: float) -> bool:
        return not self._too_low(value) and not self._too_high(value)

    def wrong(self, value: float) -> str:
        """What value does not meet: `is not at least 1`, `is not below 1`, `is not a finite number`."""
        if isinstance(value, float) and not math.isfinite(value):
            return "is not a finite number"
        if self._too_low(value):
            return f"is not {'above' if self.open_low else 'at least'} {self.low:g}"
        return f"is not {'at most' if self.closed_high else 'below'} {self.high:g}"

    def remedy(self, key: str, value: float) -> str:
        """The nearest values that are allowed, as they would be typed."""
        if self._too_high(value) and not self._too_low(value) and math.isfinite(self.high):
            below = f"a number below {self.high:g}"
            return f"use {f'{key}={self.high:g} or less' if self.closed_high else below}"
        return f"use a number above {self.low:g}" if self.open_low else f"use {key}={self.low:g} or more"

    def _too_high(self, value: float) -> bool:
        return not (value <= self.high if self.closed_high else value < self.high)

    def _too_low(self, value: float) -> bool:
        # Written so that NaN, which compares false with everything, counts as too low.
        return not (value > self.low if self.open_low else value >= self.low)


# A count ends at a trillion: no real one is so large, and the checks find the divisors of some.
COUNT = Range(1, 2**40)
COUNT_OR_NONE = Range(0, 2**40)
POSITIVE = Range(0, open_low=True)
NOT_NEGATIVE = Range(0)
FRACTION = Range(0, 1)
OPEN_FRACTION = Range(0, 1, open_low=True)
SHARE = Range(0, 1, closed_high=True)
POSITIVE_SHARE = Range(0, 1, open_low=True, closed_high=True)

RANGES: dict[str, Range] = {
    "model.num_layers": COUNT,
    "model.hidden_size": COUNT,
    "model.num_heads": COUNT,
    "model.ffn_hidden_size": COUNT,
    "model.seq_length": COUNT,
    "model.vocab_size": COUNT,
    "model.padded_vocab_size": COUNT,
    "model.layernorm_eps": POSITIVE,
    "model.dropout": FRACTION,
    "model.attention_dropout": FRACTION,
    "model.segments": COUNT_OR_NONE,
    "model.init_std": NOT_NEGATIVE,  # 0 gives a loss of exactly ln(vocab_size), a useful check
    "objective.mask_rate": OPEN_FRACTION,
    "objective.max_ngram": COUNT,
    "objective.mask_share": SHARE,
    "objective.random_share": SHARE,
    "tokenizer.vocab_size": COUNT,
    "optim.lr": POSITIVE,
    "optim.min_lr": NOT_NEGATIVE,
    "optim.warmup_steps": COUNT_OR_NONE,
    "optim.decay_steps": COUNT,
    "optim.beta1": FRACTION,
    "optim.beta2": FRACTION,
    "optim.eps": POSITIVE,
    "optim.weight_decay": NOT_NEGATIVE,
    "optim.clip_grad_norm": POSITIVE,
    "precision.initial_loss_scale": POSITIVE,
    "precision.scale_growth_steps": COUNT,
    "precision.min_loss_scale": POSITIVE,
    "parallel.ddp_bucket_mb": POSITIVE,
    "launch.threads": COUNT,
    "launch.failure_grace_s": POSITIVE,
    "launch.save_grace_s": POSITIVE,
    "launch.max_restarts": COUNT_OR_NONE,
    "launch.timeout_s": POSITIVE,
    "launch.devices_per_node": COUNT,
    "finetune.seq_length": Range(16, 2**40),
    "finetune.epochs": POSITIVE,
    "finetune.warmup_share": FRACTION,
    "train.steps": COUNT,
    "train.global_batch_size": COUNT,
    "train.micro_batch_size": COUNT,
    "train.log_interval": COUNT,
    "train.eval_interval": COUNT_OR_NONE,
    "train.eval_samples": COUNT,
    "train.final_eval_samples": COUNT,
    "train.sample_tokens": COUNT_OR_NONE,
    "train.max_hours": POSITIVE,
    "train.max_bad_steps": COUNT_OR_NONE,
    "checkpoint.interval": COUNT_OR_NONE,
    "checkpoint.keep_last": COUNT,
    "checkpoint.keep_every": COUNT_OR_NONE,
    "eval.interval": COUNT_OR_NONE,
    "eval.limit": COUNT,
    "eval.batch_tokens": COUNT,
    "tp": COUNT,
    "pp": COUNT,
    "dp": COUNT,
    "seed": Range(0, 2**63),  # a torch generator takes 64 bits, a JSON reader 63
}
"""Dotted key -> what its value has to be in; null is the schema's affair, data.split mlm.data.split's."""

_LAUNCH_RANGES: dict[str, Range] = {
    key: allowed for key, allowed in RANGES.items() if key.startswith("launch.")
}

EVAL_RANGES: dict[str, Range] = {
    **_LAUNCH_RANGES,
    "tp": COUNT,
    "dp": COUNT,
    "batch_tokens": COUNT,
    "limit": COUNT,
}
"""The same of mlm-eval."""

GENERATE_RANGES: dict[str, Range] = {
    **_LAUNCH_RANGES,
    "max_new_tokens": COUNT,
    "samples": COUNT,
    "temperature": NOT_NEGATIVE,
    "top_k": COUNT,
    "top_p": POSITIVE_SHARE,
    "seed": RANGES["seed"],
    "batch_size": COUNT,
    "tp": COUNT,
}
"""The same of mlm-generate."""

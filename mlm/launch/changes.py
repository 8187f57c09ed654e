"""What may be different in a configuration that continues a run, and what each difference means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mlm.config.fields import flatten, plain
from mlm.config.schema import TrainConfig
from mlm.errors import Problem


class Effect(Enum):
    """Of a changed value on the run that is continued."""

    EXACT = "exact"
    """The training is the same, to the bit."""
    ROUNDING = "exact to rounding"
    """The same mathematics, summed up in another order."""
    ALLOWED = "allowed"
    """Another training from here on, which the meaning tells."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Rule:
    """What becomes of a change. meaning: what it does from here on, or why it cannot be."""

    effect: Effect
    meaning: str = ""


@dataclass(frozen=True)
class Change:
    """A key whose value is not the one that the checkpoint was trained with."""

    key: str
    then: str
    now: str
    rule: Rule


_BESIDE = Rule(Effect.EXACT, "has no part in the training")
_LAYOUT = Rule(Effect.ROUNDING, "sums add up in another order")
_KERNELS = Rule(Effect.ROUNDING, "other kernels compute the same")
SHAPE = Rule(Effect.REFUSED, "its weights are made for that")
_SCHEDULE = Rule(Effect.ALLOWED, "the learning rate of every step from here on follows the new schedule")
_UPDATE = Rule(Effect.ALLOWED, "holds for every update from here on")

_SAMPLES = Rule(Effect.ALLOWED, "holds for every sample from here on")

RULES: dict[str, Rule] = {
    "model.name": _BESIDE,
    "model.architecture": SHAPE,
    "model.num_layers": SHAPE,
    "model.hidden_size": SHAPE,
    "model.num_heads": SHAPE,
    "model.ffn_hidden_size": SHAPE,
    "model.seq_length": SHAPE,
    "model.vocab_size": SHAPE,
    "model.padded_vocab_size": SHAPE,
    "model.tie_embeddings": SHAPE,
    "model.bias": SHAPE,
    "model.gelu": SHAPE,
    "model.layernorm": SHAPE,
    "model.segments": SHAPE,
    "model.layernorm_eps": SHAPE,
    "model.dropout": Rule(Effect.ALLOWED, "the new rate from here on"),
    "model.attention_dropout": Rule(Effect.ALLOWED, "the new rate from here on"),
    "model.init_std": Rule(Effect.REFUSED, "its weights have long been drawn"),
    "objective.name": SHAPE,
    "objective.mask_rate": _SAMPLES,
    "objective.max_ngram": _SAMPLES,
    "objective.mask_share": _SAMPLES,
    "objective.random_share": _SAMPLES,
    "optim.name": _BESIDE,
    "optim.lr": _SCHEDULE,
    "optim.min_lr": _SCHEDULE,
    "optim.warmup_steps": _SCHEDULE,
    "optim.decay": _SCHEDULE,
    "optim.decay_steps": _SCHEDULE,
    "optim.beta1": _UPDATE,
    "optim.beta2": _UPDATE,
    "optim.eps": _UPDATE,
    "optim.weight_decay": _UPDATE,
    "optim.clip_grad_norm": _UPDATE,
    "finetune.task": SHAPE,
    "finetune.train_path": _BESIDE,
    "finetune.dev_path": _BESIDE,
    "finetune.seq_length": _SAMPLES,
    "finetune.epochs": _BESIDE,
    "finetune.warmup_share": _BESIDE,
    "finetune.recipes": _BESIDE,
    "finetune.recipe": _BESIDE,
    "precision.name": Rule(Effect.ALLOWED, "weights and moments stay fp32, products are rounded otherwise"),
    "precision.initial_loss_scale": Rule(Effect.ALLOWED, "counts where no fp16 scale is in the checkpoint"),
    "precision.scale_growth_steps": Rule(Effect.ALLOWED, "the loss scale grows by the new rule from here on"),
    "precision.min_loss_scale": Rule(Effect.ALLOWED, "the loss scale is never below from here on"),
    "precision.matmul": Rule(Effect.ROUNDING, "products are rounded otherwise"),
    "parallel.name": _BESIDE,
    "parallel.overlap_grad_reduce": _LAYOUT,
    "parallel.ddp_bucket_mb": _LAYOUT,
    "data.shuffle_documents": Rule(Effect.ALLOWED, "goes on at the same number of another order of samples"),
    "data.reset_positions": _SAMPLES,
    "data.reset_attention": _SAMPLES,
    "launch.device": _KERNELS,
    "launch.threads": _LAYOUT,
    "train.steps": Rule(Effect.ALLOWED, "training ends there"),
    "train.global_batch_size": Rule(
        Effect.ALLOWED, "each step takes so many samples, from the next sample on; steps keep their numbers"
    ),
    "train.micro_batch_size": _LAYOUT,
    "tp": _LAYOUT,
    "pp": _LAYOUT,
    "dp": _LAYOUT,
    "seed": Rule(Effect.REFUSED, "the order of the samples follows from it"),
    "deterministic": _KERNELS,
    "profile": _BESIDE,
    "profile_steps": _BESIDE,
    "allow_pickle": _BESIDE,
    "init_from": Rule(Effect.REFUSED, "its weights have been trained since"),
}
"""By dotted key; below by section. Every key of the configuration has a rule or is not compared."""

SECTION_RULES: dict[str, Rule] = {
    "checkpoint": _BESIDE,
    "eval": _BESIDE,
    "launch": _BESIDE,
    "logger": _BESIDE,
    "train": _BESIDE,
}
"""For the keys of a section that have no rule of their own."""

NOT_COMPARED = (
    "run_dir",
    "resume",
    "sweep_dir",
    "data.name",
    "data.path",
    "data.blend",
    "data.split",
    "data.cache_dir",
    "tokenizer",
)
"""Keys and sections that say what is asked for now, or whose content is compared instead of their names."""

_DROPOUT = "; dropout draws other elements"


def rule_of(key: str) -> Rule | None:
    """What a change of the key means; None where it is not compared."""
    section = key.partition(".")[0]
    return RULES.get(key) or SECTION_RULES.get(section)


def changes(then: TrainConfig, now: TrainConfig) -> list[Change]:
    """Every key whose value differs, in the order of the schema; both configurations are resolved ones."""
    before, found = flatten(then), []
    has_dropout = now.model.dropout > 0 or now.model.attention_dropout > 0
    for key, value in flatten(now).items():
        rule = rule_of(key)
        if rule is None or value == before[key]:
            continue
        if has_dropout and key in ("tp", "dp", "train.micro_batch_size", "launch.device"):
            # Masks are drawn by rank and micro batch.
            rule = Rule(Effect.ALLOWED, f"exact to rounding{_DROPOUT}")
        found.append(Change(key, _shown(before[key]), _shown(value), rule))
    return found


def refusals(found: list[Change], checkpoint: str) -> list[Problem]:
    """Of the changes that cannot be; checkpoint: its name, for the message."""
    return [
        Problem(
            f"{change.key}={change.now}",
            f"was {change.then} for {checkpoint}, and {change.rule.meaning}",
            f"use {change.key}={change.then}",
        )
        for change in found
        if change.rule.effect is Effect.REFUSED
    ]


def table(found: list[Change]) -> Iterator[str]:
    """The changes that are made, a line each, in columns; a heading first."""
    rows = [("", "then", "now", "")]
    rows += [
        (c.key, c.then, c.now, f"{c.rule.effect.value}: {c.rule.meaning}")
        for c in found
        if c.rule.effect is not Effect.REFUSED
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows if len(rows) > 1 else []:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=False))
        yield f"  {'  '.join(cells)}  {row[3]}".rstrip()


def _shown(value: Any) -> str:
    return "null" if value is None else plain(value)

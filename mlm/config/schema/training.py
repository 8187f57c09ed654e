"""How it is trained: optimizer, number formats, length, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Decay(Enum):
    """How the learning rate falls once it is warm: by half a cosine (GPT-2) or a straight line (BERT)."""

    cosine = "cosine"
    linear = "linear"


@dataclass(kw_only=True)
class OptimConfig:
    """AdamW, warm-up and decay (sections 4.2 and 4.3)."""

    name: str
    """Name of the recipe."""
    lr: float
    """Learning rate at the end of the warm-up."""
    min_lr: float
    """Learning rate of the last step."""
    warmup_steps: int
    """Steps of linear warm-up: step k (from 1) uses lr * k / warmup_steps (section 4.2: 3k of 300k)."""
    decay: Decay = Decay.cosine
    """cosine (GPT-2, section 4.2) or linear (BERT, section 4.3)."""
    decay_steps: int | None = None
    """Step at which the decay reaches min_lr; null: train.steps."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled; on matrices only, never on biases and LayerNorms (section 4.2)."""
    clip_grad_norm: float | None = 1.0
    """Global gradient norm above which gradients are scaled down (section 4.2); null: never."""


@dataclass(kw_only=True)
class PrecisionConfig:
    """Number formats."""

    name: str
    """fp32; bf16, fp16 (autocast over fp32 parameters); auto: bf16, else fp16 on accelerators; CPU fp32."""
    matmul: str = "auto"
    """Products of fp32 matrices: highest; medium; auto: on CPU medium if a probe finds it fp32-accurate."""


@dataclass(kw_only=True)
class TrainPrecisionConfig(PrecisionConfig):
    """Number formats of training, and the dynamic loss scale of fp16 (section 4.2)."""

    initial_loss_scale: float = 65536.0
    """fp16: what the loss is multiplied by at first, so that small gradients are not rounded to zero."""
    scale_growth_steps: int = 1000
    """fp16: the loss scale doubles after so many updates in a row; an overflow skips the step, halving it."""
    min_loss_scale: float = 1.0
    """fp16: the loss scale is never below; an overflow there counts as a bad step (train.max_bad_steps)."""


@dataclass(kw_only=True)
class ParallelConfig:
    """Switches of the parallel layers; the degrees are tp, pp and dp at the top level."""

    name: str
    """Name of the option."""
    overlap_grad_reduce: bool = True
    """Issue the all-reduce of a column layer's input gradient before its weight-gradient product."""
    ddp_bucket_mb: float = 25.0
    """Size of the buckets in which data parallelism reduces gradients, in MiB."""


@dataclass(kw_only=True)
class TrainLoopConfig:
    """Length of the run, batch, and how often it speaks."""

    steps: int = 300_000
    """Optimizer steps (section 4.2)."""
    global_batch_size: int = 512
    """Samples per step over all data-parallel ranks (section 4.2)."""
    micro_batch_size: int = 8
    """Samples per forward pass of one data-parallel rank."""
    log_interval: int = 10
    """Steps between lines of progress; the first and the last step are always logged."""
    eval_interval: int = 1000
    """Steps between validations; 0: none during training."""
    eval_samples: int | None = 512
    """Samples per validation during training; null: the whole validation split."""
    final_eval: bool = True
    """Validate on the whole validation split at the end."""
    final_eval_samples: int | None = None
    """Limit of the validation at the end, in samples; null: all."""
    save: bool = True
    """Write a checkpoint at the end."""
    max_hours: float | None = None
    """Hours from the command until the run saves and ends, to be resumed (exit code 75); null: no limit."""
    max_bad_steps: int = 0
    """Steps in a row whose loss or gradients are not finite that are skipped; one more ends the run."""
    sample_tokens: int = 64
    """Tokens of text to generate at the end; 0: none."""


@dataclass(kw_only=True)
class CheckpointConfig:
    """When checkpoints are written during a run, and which are kept."""

    interval: int = 0
    """Steps between checkpoints; 0: only at the end (train.save) and when the run is stopped in order."""
    keep_last: int = 2
    """Newest checkpoints to keep; older ones are deleted once a newer one is complete."""
    keep_every: int = 0
    """Keep for good the checkpoints whose step is a multiple of this; 0: none."""
    asynchronous: bool = True
    """Copy the state to memory and write it while training goes on (as much CPU memory as a rank's state)."""


@dataclass(kw_only=True)
class EvalDuringTrainingConfig:
    """Evaluation tasks on the model that is being trained, by the code of mlm-eval."""

    tasks: list[str] = field(default_factory=list)
    """Tasks to run every interval and after the last step; none by default."""
    task_paths: dict[str, str] = field(default_factory=dict)
    """Data file of a task, as in mlm-eval: eval.task_paths.wikitext103=FILE."""
    interval: int = 0
    """Steps between evaluations; 0: only after the last step."""
    limit: int | None = None
    """Only the first so many items or windows of each task, which the result says; null: all."""
    batch_tokens: int | None = None
    """Tokens of one forward pass of a data-parallel rank; null: 1,024 on CPU, 16,384 on accelerators."""

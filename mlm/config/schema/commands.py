"""Everything that each command can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlm.config.schema.data import DataConfig, TokenizerConfig
from mlm.config.schema.finetuning import FinetuneConfig
from mlm.config.schema.launch import LaunchConfig, LoggerConfig
from mlm.config.schema.model import ModelConfig, ObjectiveConfig
from mlm.config.schema.training import (
    CheckpointConfig,
    EvalDuringTrainingConfig,
    OptimConfig,
    ParallelConfig,
    PrecisionConfig,
    TrainLoopConfig,
    TrainPrecisionConfig,
)

VERBATIM = {"verbatim": True}
"""Metadata of fields that take any text as it is typed, quotes, commas, blanks and all; of lists: as YAML."""


@dataclass(kw_only=True)
class TrainConfig:
    """Everything mlm-train can be told."""

    model: ModelConfig
    tokenizer: TokenizerConfig
    data: DataConfig
    optim: OptimConfig
    precision: TrainPrecisionConfig
    parallel: ParallelConfig
    launch: LaunchConfig
    logger: LoggerConfig
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainLoopConfig = field(default_factory=TrainLoopConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: EvalDuringTrainingConfig = field(default_factory=EvalDuringTrainingConfig)
    tp: int = 1
    """Tensor-parallel degree: how many ranks share each layer (section 3)."""
    pp: int = 1
    """Pipeline-parallel degree; only 1 so far."""
    dp: int | None = None
    """Data-parallel degree; null: processes / (tp * pp), with 1 on a machine without accelerators."""
    seed: int = 1234
    """Seeds initial weights, data order and dropout."""
    deterministic: bool = False
    """Ask torch for deterministic kernels (bitwise repeatable on CUDA, slower)."""
    profile: bool = False
    """Record profile_steps with torch's profiler: a trace per rank and a table of time by kind."""
    profile_steps: list[int] | None = None
    """Steps to record, counted from 1, at most ten; null: the last three. Throughput leaves them out."""
    run_dir: str | None = None
    """Where the run writes; null: runs/<model>-<date>-<time>. An existing run's only with resume."""
    resume: str = "never"
    """never; auto: from run_dir's newest whole checkpoint; or a run or checkpoint directory to go on from."""
    init_from: str | None = None
    """Whose weights training starts from, at step 0: a run, one of its checkpoints/step_N, or a folder of
    Hugging Face's; null: random."""
    allow_pickle: bool = False
    """Let init_from read .bin and .pt files that could run code: only for files that you trust."""
    sweep_dir: str | None = None
    """With -m, where all runs go; null: runs/<study>, or runs/sweep-<hash> of what was typed."""


@dataclass(kw_only=True)
class EvalConfig:
    """Everything mlm-eval can be told."""

    precision: PrecisionConfig
    launch: LaunchConfig
    checkpoint: str | None = None
    """What is evaluated: a run's directory (its newest checkpoint) or one of its checkpoints/step_N."""
    tasks: list[str]
    """Names of tasks, in the order in which they run."""
    task_paths: dict[str, str] = field(default_factory=dict)
    """Data files by the names that --help lists: task_paths.wikitext103=FILE. Others are looked for."""
    tp: int = 1
    """Tensor-parallel degree, whatever the checkpoint was trained at."""
    dp: int | None = None
    """Ranks that share out the windows; null: as many as there are devices, 1 without accelerators."""
    batch_tokens: int | None = None
    """Tokens of one forward pass of a data-parallel rank; null: 1,024 on CPU, 16,384 on accelerators."""
    ensemble: list[str] = field(default_factory=list)
    """Further checkpoints fine-tuned to the same task, whose probabilities are averaged with the first's."""
    limit: int | None = None
    """Only the first so many items or windows of each task, which the result says; null: all."""
    out: str | None = None
    """Where eval.json goes; null: eval/<date>-<time> in the run's directory. Never an existing result's."""

    @property
    def pp(self) -> int:
        """Evaluation is not pipelined."""
        return 1


@dataclass(kw_only=True)
class GenerateConfig:
    """Everything mlm-generate can be told."""

    precision: PrecisionConfig
    launch: LaunchConfig
    checkpoint: str | None = None
    """What writes: a run's directory (its newest checkpoint) or one of its checkpoints/step_N."""
    prompt: str | None = field(default=None, metadata=VERBATIM)
    """The text to go on from, as it is typed; empty: a new document."""
    prompts: str | None = None
    """A file of prompts: one a line, or in a .jsonl file the key prompt or text of each line."""
    interactive: bool = False
    """Ask for prompts in the terminal, one after the other."""
    out: str | None = None
    """A file for the texts as JSON lines; null: standard output. Never an existing one."""
    max_new_tokens: int = 128
    """Tokens that a text may have after its prompt."""
    samples: int = 1
    """Texts per prompt."""
    temperature: float = 1.0
    """Divides the logits; 0: always the likeliest token."""
    top_k: int | None = None
    """Draw from the so many likeliest tokens only; null: from all."""
    top_p: float | None = None
    """Draw from the smallest set of likeliest tokens that has this probability; null: from all."""
    stop: list[str] = field(default_factory=list, metadata=VERBATIM)
    """Strings that end a text where they first appear in it, and are left out: stop=["\\n\\n","Q:"]."""
    slide: bool = False
    """Go on when the model's context is full, the oldest half of it out of sight; false: end there."""
    echo: bool = False
    """Print the prompt in front of its text."""
    seed: int = 1234
    """Decides, with the numbers of prompt and sample, what is drawn."""
    batch_size: int = 8
    """Texts in the making at once."""
    cache: bool = True
    """Keep keys and values of the tokens so far; false: compute them anew for each token, to compare."""
    tp: int = 1
    """Tensor-parallel degree, whatever the checkpoint was trained at."""

    @property
    def pp(self) -> int:
        """Generation is not pipelined."""
        return 1

    @property
    def dp(self) -> int:
        """All texts are made by one copy of the model."""
        return 1

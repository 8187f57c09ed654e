"""What tells commands apart: the dataclass each is configured by, its primary file and its checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from mlm.config.checks import check, check_evaluation, check_generation
from mlm.config.fields import C
from mlm.config.schema import EvalConfig, GenerateConfig, ModelConfig, TokenizerConfig, TrainConfig
from mlm.errors import Problem


@dataclass(frozen=True)
class Spec(Generic[C]):
    """The configuration of one command.

    name: as it is typed; primary: configs/PRIMARY.yaml lists its groups; check: what its dataclass has wrong
    by itself; paths: keys that name files or directories, made absolute once. from_checkpoint: model and
    tokenizer, if any, of the weights that a path names (bool: pickles may be read; heads and vocabulary: as
    typed, for files that do not say), in formats that this package knows nothing of; None where no key can
    ask for it. Raises ConfigError. completed: the configuration with what follows from files put in; it
    raises nothing, and leaves problems to who reports them.
    """

    name: str
    primary: str
    schema: type[C]
    check: Callable[[C], list[Problem]]
    paths: tuple[str, ...]
    from_checkpoint: (
        Callable[[str, bool, int | None, int | None], tuple[ModelConfig, TokenizerConfig | None]] | None
    ) = None
    completed: Callable[[C], C] = lambda config: config


TRAIN = Spec(
    "mlm-train",
    "train",
    TrainConfig,
    check,
    (
        "data.path",
        "data.blend",
        "data.cache_dir",
        "tokenizer.path",
        "run_dir",
        "sweep_dir",
        "init_from",
        "eval.task_paths",
        "finetune.train_path",
        "finetune.dev_path",
    ),
)
EVAL = Spec("mlm-eval", "eval", EvalConfig, check_evaluation, ("checkpoint", "ensemble", "task_paths", "out"))
GENERATE = Spec(
    "mlm-generate",
    "generate",
    GenerateConfig,
    check_generation,
    ("checkpoint", "prompts", "out"),
)

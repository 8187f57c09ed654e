"""What tells commands apart: the dataclass each is configured by, its primary file and its checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from mlm.config.checks import check, check_evaluation
from mlm.config.fields import C
from mlm.config.schema import EvalConfig, TrainConfig
from mlm.errors import Problem


@dataclass(frozen=True)
class Spec(Generic[C]):
    """The configuration of one command.

    name: as it is typed; primary: configs/PRIMARY.yaml lists its groups; check: what its dataclass has wrong
    by itself; paths: keys that name files or directories, made absolute once.
    """

    name: str
    primary: str
    schema: type[C]
    check: Callable[[C], list[Problem]]
    paths: tuple[str, ...]


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
EVAL = Spec("mlm-eval", "eval", EvalConfig, check_evaluation, ("checkpoint", "task_paths", "out"))

"""Every field of a command's configuration: its name, type, meaning and source. YAML owns the choices."""

from mlm.config.schema.commands import VERBATIM, EvalConfig, GenerateConfig, TrainConfig
from mlm.config.schema.data import BlendPart, DataConfig, TokenizerConfig
from mlm.config.schema.finetuning import FinetuneConfig, FinetuneRecipe
from mlm.config.schema.launch import LaunchConfig, LoggerConfig
from mlm.config.schema.model import Gelu, LayerNormPlacement, ModelConfig, ObjectiveConfig
from mlm.config.schema.training import (
    CheckpointConfig,
    Decay,
    EvalDuringTrainingConfig,
    OptimConfig,
    ParallelConfig,
    PrecisionConfig,
    TrainLoopConfig,
    TrainPrecisionConfig,
)

__all__ = [
    "VERBATIM",
    "BlendPart",
    "CheckpointConfig",
    "DataConfig",
    "Decay",
    "EvalConfig",
    "EvalDuringTrainingConfig",
    "FinetuneConfig",
    "FinetuneRecipe",
    "Gelu",
    "GenerateConfig",
    "LaunchConfig",
    "LayerNormPlacement",
    "LoggerConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "OptimConfig",
    "ParallelConfig",
    "PrecisionConfig",
    "TokenizerConfig",
    "TrainConfig",
    "TrainLoopConfig",
    "TrainPrecisionConfig",
]

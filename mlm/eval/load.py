"""From a checkpoint on disk to a model and its tokenizer, at any layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from mlm.checkpoint.load import load_weights
from mlm.config.schema import ModelConfig
from mlm.config.store import load_config
from mlm.data.tokenizers import Tokenizer
from mlm.errors import CheckpointError, ConfigError
from mlm.eval.locate import Checkpoint, read_tokenizer, resolve_checkpoint, tp_problems
from mlm.models.registry import build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams


class Loaded(NamedTuple):
    """A model ready to be evaluated.

    model: this rank's part, in eval mode, fp32. config: its shape. tokenizer: the one it was trained with.
    description: where it comes from, JSON-ready.
    """

    model: nn.Module
    config: ModelConfig
    tokenizer: Tokenizer
    description: dict[str, Any]


def load_for_evaluation(checkpoint: Checkpoint | Path, *, mesh: Mesh, device: torch.device) -> Loaded:
    """Build the checkpoint's model and fill it, whatever tp and dp it was written at; collective.

    checkpoint: as resolve_checkpoint found it, or a path for it. Raises ConfigError when there is none or tp
    does not divide the model, CheckpointError when a file of the run is not what it has to be, DataError when
    the tokenizer's file is gone or has changed.
    """
    if isinstance(checkpoint, Path):
        checkpoint = resolve_checkpoint(checkpoint)
    trained = load_config(checkpoint.config_path)
    problems = tp_problems(trained.model, mesh.tp.size)
    if problems:
        raise ConfigError(problems)
    tokenizer = read_tokenizer(checkpoint)
    if tokenizer.vocab_size > trained.model.vocab_size:
        raise CheckpointError(
            f"{checkpoint.data_path} describes a tokenizer of {tokenizer.vocab_size:,} tokens, the model has "
            f"{trained.model.vocab_size:,}: put back the files of the run that wrote the checkpoint"
        )
    model = build_model(
        # Nothing is drawn for weights that are about to be read.
        replace(trained.model, init_std=0.0),
        tp=mesh.tp,
        rng=RngStreams(trained.seed, mesh, device),
        seed=trained.seed,
        objective=trained.objective.name,
        device=device,
    )
    load_weights(checkpoint.directory, model, mesh)
    model.eval()
    description = {
        "directory": str(checkpoint.directory),
        "step": checkpoint.step,
        "trained_with": {"tp": trained.tp, "dp": trained.dp, "precision": trained.precision.name},
        "model": trained.model.name,
        "tokenizer": {"name": tokenizer.name, "fingerprint": tokenizer.fingerprint},
    }
    return Loaded(model, trained.model, tokenizer, description)

"""Whole runs inside a pool: the trainer's own loop on a tiny model and made tokens, at any layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mlm.checkpoint.layout import moments, weights
from mlm.checkpoint.origin import Origin
from mlm.config.compose import compose
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.data.indexed import IndexedWriter
from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.data.samples import TokenWindows
from mlm.launch.signals import Signals
from mlm.parallel.job import Place
from mlm.train.loop import Trainer
from mlm.train.objectives.next_token import NextToken
from mlm.train.setup import build_run
from tests.dist.meshes import TINY, mesh_of, whole

GLOBAL_BATCH = 8
SAMPLES = 19
"""Of an epoch: not a multiple of the batch, so that an epoch ends inside of a step."""


@dataclass(frozen=True)
class Case:
    """One attempt of a run, as far as tests vary it. interval: steps between checkpoints, 0 for none."""

    tp: int = 1
    dp: int = 1
    steps: int = 6
    micro: int = 2
    batch: int = GLOBAL_BATCH
    dropout: float = 0.0
    init_std: float = TINY.init_std
    interval: int = 0
    dtype: torch.dtype = torch.float32
    lr: float = 3e-3
    asynchronous: bool = True


class Recorded(TokenWindows):
    """Training samples that remember which numbers were asked for."""

    def __init__(self, windows: TokenWindows):
        self.__dict__.update(windows.__dict__)
        self.numbers: list[list[int]] = []

    def batch(self, sample_numbers: ArrayLike) -> NDArray[np.int64]:
        self.numbers.append(np.asarray(sample_numbers).tolist())
        return super().batch(sample_numbers)


def make_data(folder: Path) -> Path:
    """A folder with data.json and the tokens that it describes, for any number of runs."""
    folder.mkdir()
    tokens = SAMPLES * TINY.seq_length + TINY.seq_length + 3
    with IndexedWriter(folder / "text", TINY.vocab_size) as writer:
        writer.add_document(np.random.default_rng(5).integers(0, TINY.vocab_size, tokens))
    data = PreparedData(
        source="made",
        embedded=False,
        datasets=(
            PreparedDataset(
                name="made",
                prefix=str(folder / "text"),
                ranges={"train": (0, tokens), "valid": (tokens, tokens), "test": (tokens, tokens)},
                documents={"train": 1, "valid": 0, "test": 0},
                first_documents={"train": None, "valid": None, "test": None},
            ),
        ),
        tokenizer={"kind": "byte", "fingerprint": "none"},
        seq_length=TINY.seq_length,
        fingerprint="none",
        ln_vocab=1.0,
    )
    (folder / "data.json").write_text(data.to_json())
    return folder


def config_of(case: Case, run_dir: Path) -> TrainConfig:
    config = compose(
        [
            "model=gpt2_tiny",
            f"tp={case.tp}",
            f"dp={case.dp}",
            f"train.steps={case.steps}",
            f"train.global_batch_size={case.batch}",
            f"train.micro_batch_size={case.micro}",
            f"optim.lr={case.lr}",
            "optim.min_lr=1e-5",
            "optim.warmup_steps=2",
            "optim.decay_steps=20",
            f"checkpoint.interval={case.interval}",
            f"checkpoint.asynchronous={case.asynchronous}",
            "launch.device=cpu",
        ]
    )
    model = replace(TINY, dropout=case.dropout, attention_dropout=case.dropout, init_std=case.init_std)
    config = replace(config, model=model)
    return resolved(
        config, device="cpu", processes=case.tp * case.dp, threads=1, precision="fp32", run_dir=run_dir
    )


def run_steps(case: Case, run_dir: Path) -> dict[str, Any]:
    """All steps that are left of the run in run_dir, made by new_run.

    Returns the sample numbers of this rank by step, and the full tensors of the state at the end.
    """
    mesh = mesh_of(case.tp, case.dp)
    config = config_of(case, run_dir)
    run = build_run(config, Place(torch.device("cpu"), mesh, "highest"), case.dtype)
    assert isinstance(run.objective, NextToken)
    assert isinstance(run.objective.train, TokenWindows)
    run.objective.train = recorded = Recorded(run.objective.train)
    trainer = Trainer(run, 0.0, Signals())
    trainer.say_where_it_begins()
    trainer.steps()
    trainer.close()
    tensors = weights(run.model) | moments(run.model, run.optimizer.named_moments())
    return {
        "samples": recorded.numbers,
        "tensors": {
            name: whole(tensor, declaration, mesh) for name, (tensor, declaration) in tensors.items()
        },
        "state": trainer.state,
    }


def new_run(run_dir: Path, data: Path, checkpoint: Path | None = None) -> Path:
    """A run directory as the launcher leaves it to the workers."""
    run_dir.mkdir()
    (run_dir / "data.json").write_bytes((data / "data.json").read_bytes())
    (run_dir / "config.yaml").write_text("tp: 1\n")
    Origin(checkpoint=None if checkpoint is None else str(checkpoint)).write(run_dir)
    return run_dir

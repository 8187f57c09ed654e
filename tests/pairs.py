"""A small world for masked_lm: 37 pieces, documents of a few sentences, a run's objective on them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from mlm.config.compose import compose
from mlm.config.schema import TrainConfig
from mlm.data.indexed import IndexedWriter
from mlm.data.prepare import prepare_data
from mlm.data.prepared import PreparedData
from mlm.parallel.mesh import Mesh
from mlm.train.objectives import Objective, Setting, build_objective
from mlm.train.objectives.pairs import INPUTS, PairBatch

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *(f"w{n}" for n in range(24)), *(f"##p{n}" for n in range(8))]


def make_sentences(folder: Path, documents: int = 60, *, longest: int = 6) -> Path:
    """vocab.txt and the dataset d in folder: documents of 1 to 5 sentences of 1 to `longest` tokens."""
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    rng = np.random.default_rng(2)
    with IndexedWriter(folder / "d", len(PIECES)) as writer:
        for number in range(documents):
            sizes = rng.integers(1, longest + 1, 1 + number % 5)
            writer.add_sentences([rng.integers(len(SPECIAL), len(PIECES), size).tolist() for size in sizes])
    return folder


def pair_config(folder: Path, *changes: str) -> TrainConfig:
    """Of a BERT with the sizes of tests.dist.meshes.TINY."""
    return compose(
        [
            "model=bert_tiny",
            "model.num_layers=2",
            "model.hidden_size=32",
            "model.num_heads=4",
            "model.seq_length=16",
            f"model.vocab_size={len(PIECES)}",
            "model.padded_vocab_size=40",
            "model.dropout=0",
            "model.attention_dropout=0",
            "data=indexed",
            f"data.path={folder / 'd'}",
            "data.split=[80,20,0]",
            f"data.cache_dir={folder / 'cache'}",
            f"tokenizer.path={folder / 'vocab.txt'}",
            *changes,
        ]
    )


def prepared_pairs(config: TrainConfig) -> PreparedData:
    model = config.model
    return prepare_data(
        config.data, config.tokenizer, model.vocab_size, model.seq_length, lambda line: None, "masked_lm"
    )


def objective_of(config: TrainConfig, data: PreparedData, mesh: Mesh) -> Objective:
    """On the CPU, without autocast."""
    return build_objective(Setting(config, Path("/"), data, mesh, torch.device("cpu"), nullcontext))


def meta_pairs(samples: int, seq: int, places: int) -> PairBatch:
    """A micro batch whose tensors have shapes and no values."""
    shapes = {"masked_at": (samples, places), "masked_ids": (samples, places)}
    shapes |= {"masked_weights": (samples, places), "swapped": (samples,), "order_weights": (samples,)}
    dtypes = {"real": torch.bool, "masked_weights": torch.float64, "order_weights": torch.float64}
    inputs = {
        name: torch.empty(
            shapes.get(name, (samples, seq)), dtype=dtypes.get(name, torch.int64), device="meta"
        )
        for name in INPUTS
    }
    return PairBatch(inputs, torch.empty((), dtype=torch.float64, device="meta"), samples)

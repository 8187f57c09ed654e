"""A run directory with a checkpoint of random weights, made in this process in a moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from mlm.checkpoint.layout import weights
from mlm.checkpoint.save import Saver
from mlm.checkpoint.state import TrainingState
from mlm.config.compose import compose
from mlm.config.store import save_config
from mlm.data.prepared import PreparedData
from mlm.data.tokenizers import ByteTokenizer, Gpt2Tokenizer
from mlm.models.registry import build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams

GPT2 = ("tokenizer=gpt2", "model.vocab_size=50257", "model.padded_vocab_size=50304")


def write_run(run_dir: Path, *overrides: str) -> Path:
    """What a run leaves of itself for those who use its model; returns run_dir.

    overrides: tokenizer=gpt2 with what goes with it (GPT2), else bytes.
    """
    # init_std: large enough for every weight to matter in what the model says.
    config = compose(["model=gpt2_tiny", "model.seq_length=128", "model.init_std=0.2", *overrides])
    mesh, device = Mesh.single(), torch.device("cpu")
    model = build_model(
        config.model, tp=mesh.tp, rng=RngStreams(7, mesh, device), seed=7, dtype=torch.float32
    )
    with torch.no_grad():
        # Otherwise a tied model goes on with the last token for ever.
        model.get_parameter("embedding.position.weight").mul_(3)
    (run_dir / "checkpoints").mkdir(parents=True)
    save_config(replace(config, run_dir=str(run_dir)), run_dir / "config.yaml")
    data = PreparedData(
        source="a test",
        embedded=False,
        datasets=(),
        tokenizer=(Gpt2Tokenizer() if "tokenizer=gpt2" in overrides else ByteTokenizer()).describe(),
        seq_length=config.model.seq_length,
        fingerprint="",
        ln_vocab=0.0,
    )
    (run_dir / "data.json").write_text(data.to_json())
    Saver(run_dir / "checkpoints", mesh).save(TrainingState(step=3), weights(model))
    return run_dir

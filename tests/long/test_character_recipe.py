"""nanoGPT's CPU recipe on Shakespeare, whole: does mlm learn what another trainer learns?"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
import torch

from mlm.checkpoint.load import load_weights
from mlm.config.store import load_config
from mlm.data.indexed import IndexedDataset
from mlm.data.prepared import PreparedData
from mlm.models.registry import build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from tests.e2e.launching import MLM_TRAIN, Launches

pytestmark = pytest.mark.long

SEEDS = [1337, 1338, 1339]


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    folder = tmp_path_factory.mktemp("recipe")
    return Launches(folder, folder / "cache")


def validation_loss(launches: Launches, seed: int, tp: int) -> tuple[float, Path]:
    run_dir = launches.folder / f"seed{seed}_tp{tp}"
    # One thread: sums are added up in the same order whatever the machine, and a busy one does not stall.
    words = [
        "experiment=shakespeare_char",
        f"seed={seed}",
        f"tp={tp}",
        f"run_dir={run_dir}",
        "launch.threads=1",
    ]
    launched = launches.run([*MLM_TRAIN, *words], timeout_s=1200)
    assert launched.code == 0, launched.out + launched.err
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["valid_tokens"] == 111_540 - 1, "every character but the first"
    return summary["valid_loss"], run_dir


@torch.no_grad()
def nanogpt_estimate(run_dir: Path, seed: int) -> float:
    """The mean over 20 batches of 12 random windows, as nanoGPT's script prints it."""
    config = load_config(run_dir / "config.yaml")
    mesh = Mesh.single()
    rng = RngStreams(config.seed, mesh, torch.device("cpu"))
    model = build_model(config.model, tp=mesh.tp, rng=rng, seed=config.seed)
    load_weights(run_dir / "checkpoints" / "step_2000", model, mesh)
    model.eval()
    data = PreparedData.from_json((run_dir / "data.json").read_text())
    tokens = torch.from_numpy(
        IndexedDataset(data.prefix).tokens[slice(*data.ranges["valid"])].astype("int64")
    )
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(20):
        starts = torch.randint(len(tokens) - 64, (12,), generator=generator)
        ids = torch.stack([tokens[start : start + 65] for start in starts])
        weights = torch.full((12, 64), 1 / (12 * 64))
        losses.append(model(ids[:, :-1], ids[:, 1:], weights).item())
    return statistics.mean(losses)


def test_three_seeds_reach_the_loss_that_nanogpt_reaches_and_tp_2_follows(launches, capsys):
    whole = {}
    for seed in SEEDS:
        whole[seed], run_dir = validation_loss(launches, seed, tp=1)
        split, _ = validation_loss(launches, seed, tp=2)
        with capsys.disabled():
            print(
                f"\nseed {seed}: validation loss {whole[seed]:.4f} at tp=1, {split:.4f} at tp=2; "
                f"20 random batches {nanogpt_estimate(run_dir, seed):.4f}"
            )
        assert whole[seed] <= 1.93
        assert abs(split - whole[seed]) < 0.01
    assert statistics.mean(whole.values()) <= 1.92

"""What masked_lm makes of samples: losses as another library has them, weights, baselines, no waiting."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mlm.config.compose import compose
from mlm.config.schema import TrainConfig
from mlm.data.indexed import IndexedWriter
from mlm.data.prepared import PreparedDataset
from mlm.data.unigram import unigram
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from mlm.train.guard import Guard, Scaling
from mlm.train.objectives.masked_lm import MaskedLm
from mlm.train.objectives.pairs import Sums, pair_result
from mlm.train.step import train_step
from tests.pairs import PIECES, make_sentences, meta_pairs, objective_of, pair_config, prepared_pairs
from tests.transformers_bert import as_transformers


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    folder = make_sentences(tmp_path_factory.mktemp("pairs"))
    batch = ("train.global_batch_size=6", "train.micro_batch_size=6")
    return pair_config(folder, "model.layernorm=post", "model.init_std=0.2", *batch)


def objective(config: TrainConfig) -> MaskedLm:
    found = objective_of(config, prepared_pairs(config), Mesh.single())
    assert isinstance(found, MaskedLm)
    return found


def model_of(config: TrainConfig, device: str = "cpu", **changes: Any) -> nn.Module:
    rng = RngStreams(1, Mesh.single(), torch.device("cpu"))
    return build_model(
        config.model, tp=Mesh.single().tp, rng=rng, seed=1, objective="masked_lm", device=device, **changes
    )


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM"])
def test_losses_equal_those_of_transformers_to_1e_5(config: TrainConfig, name: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    model = model_of(config).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too, or their order could not be wrong
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    theirs = as_transformers(config.model, dict(model.named_parameters()), name)
    (batch,) = objective(config).micro_batches(np.arange(6))
    inputs = batch.inputs
    labels = torch.full_like(inputs["ids"], -100)
    for row, (at, targets, weights) in enumerate(
        zip(inputs["masked_at"], inputs["masked_ids"], inputs["masked_weights"], strict=True)
    ):
        labels[row, at[weights > 0]] = targets[weights > 0]
    orders = {"next_sentence_label": inputs["swapped"]} if name == "BertForPreTraining" else {}
    with torch.no_grad():
        expected = theirs(
            input_ids=inputs["ids"],
            token_type_ids=inputs["segments"],
            attention_mask=inputs["real"].long(),
            labels=labels,
            **orders,
        ).loss.item()
        loss, figures = batch.loss(model, 1)
    assert figures[1] > 0.5, "an order that is not guessed"
    ours = loss.item() if orders else figures[0].item()
    assert ours == pytest.approx(expected, abs=1e-5)


def test_a_micro_batch_without_a_masked_token_counts_nothing_and_is_no_nan(config: TrainConfig) -> None:
    made = objective(config)
    batch = made.train.batch(np.arange(6))
    batch.masked_weights[:] = 0.0
    made.train = Fixed(batch)  # type: ignore[assignment]
    (micro,) = made.micro_batches(np.arange(6))
    loss, figures = micro.loss(model_of(config), 1)
    assert figures[0].item() == 0.0
    assert loss.item() == pytest.approx(figures[1].item(), rel=1e-6)


class Fixed:
    def __init__(self, batch: Any):
        self._batch = batch

    def batch(self, numbers: Any) -> Any:
        return self._batch


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_asks_nothing_of_the_device(precision: str) -> None:
    # On meta a tensor has no value: whatever asks for one (item, if, boolean mask) raises.
    config = compose(["model=bert_tiny"])
    model = model_of(config, device="meta")
    scaling = Scaling(initial=2.0**16, growth_steps=4, floor=1.0) if precision == "fp16" else None
    guard = Guard(Mesh.single().dp, torch.device("meta"), max_bad_steps=0, scaling=scaling)
    step = train_step(
        model,
        AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.999, eps=1e-8),
        [meta_pairs(2, config.model.seq_length, 19)] * 2,
        lr=1e-4,
        clip_grad_norm=1.0,
        mesh=Mesh.single(),
        autocast=nullcontext,
        guard=guard,
    )
    assert step.loss_share.is_meta
    assert step.figures is not None
    assert step.figures.is_meta
    assert step.figures.shape == (4,)


def test_figures_are_means_and_a_blends_are_weighed() -> None:
    one = Sums(
        masked_nll=20,
        order_nll=3,
        masked_right=5,
        order_right=4,
        masked=10,
        samples=5,
        unigram_nll=30,
        unigram_right=2,
    )
    other = Sums(
        masked_nll=40,
        order_nll=1,
        masked_right=8,
        order_right=2,
        masked=40,
        samples=2,
        unigram_nll=80,
        unigram_right=4,
    )
    single = pair_result([("a", 1.0)], [one])
    assert single.loss == 2.0 + 0.6
    assert single.values == {
        "loss": 2.6,
        "masked_loss": 2.0,
        "masked_accuracy": 0.5,
        "order_loss": 0.6,
        "order_accuracy": 0.8,
        "unigram_loss": 3.0,
        "unigram_accuracy": 0.2,
        "masked_tokens": 10,
        "samples": 5,
    }
    assert f"perplexity {math.exp(2):.2f}, 50.0% right" in single.said
    blend = pair_result([("a", 0.25), ("b", 0.75)], [one, other]).values
    assert blend["masked_loss"] == 0.25 * 2.0 + 0.75 * 1.0
    assert blend["order_accuracy"] == 0.25 * 0.8 + 0.75 * 1.0
    assert blend["loss_b"] == 1.5
    assert blend["masked_tokens"] == 50


def test_the_baseline_is_the_frequency_in_the_training_text(tmp_path: Path, monkeypatch) -> None:
    tokens = np.array([5, 6, 5, 7, 5, 6, 9, 9, 9, 9])
    with IndexedWriter(tmp_path / "d", 10) as writer:
        writer.add_document(tokens)
    ranges = {"train": (0, 6), "valid": (6, 10), "test": (10, 10)}
    ones = dict.fromkeys(ranges, 1)
    dataset = PreparedDataset("d", str(tmp_path / "d"), ranges, ones, dict.fromkeys(ranges))
    known = unigram(dataset, np.arange(5, 10), 12)
    assert np.exp(known[5:10]) == pytest.approx(np.array([4, 3, 2, 1, 1]) / 11)
    assert np.isneginf(known[[0, 4, 10, 11]]).all()
    # Of a longer text, stretches: here of one token each, at 0, 2 and 5.
    monkeypatch.setattr("mlm.data.unigram.MOST_TOKENS", 3)
    monkeypatch.setattr("mlm.data.unigram._STRETCHES", 3)
    assert np.exp(unigram(dataset, np.arange(5, 10), 12)[5:10]) == pytest.approx(
        np.array([3, 2, 1, 1, 1]) / 8
    )


def test_the_trained_baseline_knows_the_held_out_targets_by_their_frequency(config: TrainConfig) -> None:
    """The sums of a validation against the samples themselves."""
    made = objective(config)
    (valid,) = made.valid
    batch = valid.samples.batch(np.arange(len(valid.samples)))
    targets: Tensor = torch.from_numpy(batch.masked_ids)[torch.from_numpy(batch.masked_weights) > 0]
    found = made.validate(model_of(config), None)
    assert found is not None
    known = torch.from_numpy(unigram(made.data.datasets[0], np.arange(5, len(PIECES)), len(PIECES)))
    assert found.values["unigram_loss"] == pytest.approx(-known[targets].mean().item(), rel=1e-12)
    most = (targets == known.argmax()).double().mean().item()
    assert found.values["unigram_accuracy"] == pytest.approx(most, rel=1e-12)
    assert found.values["masked_tokens"] == len(targets)

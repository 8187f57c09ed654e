"""From prepared datasets to a worker's samples: blended by weight, the same at every dp, after a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlm.config.schema import BlendPart, DataConfig, TokenizerConfig
from mlm.data.prepare import prepare_data
from mlm.data.prepared import PreparedData
from mlm.data.reading import prompt_ids, training_samples, validation_sets
from mlm.errors import ConfigError

SEQ = 16


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def datasets(write_by_hand: Callable[..., Path]) -> list[Path]:
    """Three of 100 documents; every id of dataset k is k + 1."""
    return [write_by_hand([[k + 1] * 40] * 100, name=f"set{k}") for k in range(3)]


def prepared(paths: list[Path], weights: list[float], split: list[float] | None = None) -> PreparedData:
    blend = [BlendPart(weight=w, path=str(p)) for w, p in zip(weights, paths, strict=True)]
    data = DataConfig(name="test", blend=blend, split=split or [90, 10, 0])
    return prepare_data(data, TokenizerConfig(kind="byte"), 257, SEQ, lambda _: None)


def samples_of(data: PreparedData, **changes: Any):
    return training_samples(data, **{"seed": 1, "shuffle_documents": True, "packed": False} | changes)


@pytest.mark.parametrize("weights", [[0.3, 0.7, 0.0], [0.001, 0.998, 0.001], [5, 3, 2]], ids=str)
def test_the_tokens_of_a_run_come_from_each_dataset_by_its_weight_to_within_a_sample(datasets, weights):
    data = prepared(datasets, weights)
    assert PreparedData.from_json(data.to_json()) == data
    ids = samples_of(data).batch(np.arange(1000))
    assert (ids == ids[:, :1]).all(), "a sample is of one dataset"
    for n in (1, 10, 77, 500, 1000):
        counts = np.bincount(ids[:n, 0], minlength=4)[1:]
        assert counts.tolist() == data.consumed(n)
        assert np.abs(counts - n * np.array(weights) / sum(weights)).max() <= 1


@pytest.mark.parametrize("packed", [False, True])
def test_the_samples_of_a_step_are_the_same_for_one_rank_for_two_and_after_a_resume(datasets, packed):
    data = prepared(datasets, [0.2, 0.5, 0.3])
    batch, steps = 12, 20
    one = samples_of(data, packed=packed).batch(np.arange(steps * batch))
    for dp in (1, 2, 4):
        for rank in range(dp):
            mine = batch // dp
            samples = samples_of(data, packed=packed)  # a fresh one at step 7: a resume
            for step in (7, 8, 19):
                first = step * batch + rank * mine
                assert (
                    samples.batch(np.arange(first, first + mine)).tolist()
                    == one[first : first + mine].tolist()
                )


def test_two_copies_of_a_dataset_do_not_come_in_step(write_by_hand: Callable[..., Path]):
    prefix = write_by_hand([list(range(d, d + 200)) for d in range(0, 6000, 200)], "i")
    blend = [BlendPart(weight=1, path=str(prefix))] * 2
    data = prepare_data(
        DataConfig(name="t", blend=blend, split=[1]), TokenizerConfig(kind="byte"), 7000, SEQ, lambda _: None
    )
    assert [d.name for d in data.datasets] == ["made[0]", "made[1]"]
    ids = samples_of(data).batch(np.arange(200))
    drawn, _ = data.blend.locate(np.arange(200))
    assert ids[drawn == 0].tolist() != ids[drawn == 1].tolist()


def test_validation_is_of_each_dataset_with_weight_and_its_weights_sum_to_one(datasets):
    data = prepared(datasets, [3, 1, 0], split=[90, 10, 0])
    sets = validation_sets(data, packed=True)
    assert [(s.name, s.weight) for s in sets] == [("set0", 0.75), ("set1", 0.25)]
    assert [len(s.windows) for s in sets] == [25, 25]
    assert data.valid_samples == 50
    assert data.tokens == {"train": 7200, "valid": 800, "test": 0}
    assert prompt_ids(data).tolist() == [1] * 8
    assert prompt_ids(prepared(datasets, [0, 0, 1], split=[1])).tolist() == [3] * 8


def test_one_dataset_in_a_blend_and_alone_have_the_same_samples_and_fingerprint(datasets):
    data = DataConfig(name="test", path=str(datasets[1]), split=[90, 10, 0])
    alone = prepare_data(data, TokenizerConfig(kind="byte"), 257, SEQ, lambda _: None)
    blended = prepared([datasets[1]], [7])
    assert alone.fingerprint == blended.fingerprint
    numbers = np.arange(500)
    assert samples_of(alone).batch(numbers).tolist() == samples_of(blended).batch(numbers).tolist()


def test_weights_order_and_content_are_in_the_fingerprint(datasets):
    found = {
        prepared(datasets, weights).fingerprint for weights in ([1, 1, 1], [1, 1, 2], [0, 1, 1], [1, 0, 1])
    }
    assert len(found) == 4


def test_ids_beyond_the_vocabulary_are_named_for_every_dataset_at_once(write_by_hand: Callable[..., Path]):
    paths = [write_by_hand([[300 + k] * 900], name=f"wrong{k}") for k in range(2)]
    with pytest.raises(ConfigError) as error:
        prepared(paths, [1, 1], split=[1])
    for k in range(2):
        assert f"data.blend[{k}].path={paths[k]} holds token id {300 + k}" in str(error.value)


def test_without_shuffling_documents_the_windows_are_those_of_the_file(datasets, write_by_hand):
    prefix = write_by_hand([list(range(d, d + 20)) for d in range(0, 2000, 20)], "i", name="order")
    data = DataConfig(name="test", path=str(prefix), split=[1])
    one = prepare_data(data, TokenizerConfig(kind="byte"), 3000, SEQ, lambda _: None)
    plain = samples_of(one, shuffle_documents=False).batch(np.arange(300))
    assert (np.diff(plain, axis=1) == 1).all(), "neighbours in the file"
    shuffled = samples_of(one).batch(np.arange(300))
    assert not (np.diff(shuffled, axis=1) == 1).all()


def test_the_first_id_outside_the_vocabulary_is_refused_and_the_last_one_inside_is_not(
    write_by_hand: Callable[..., Path],
):
    data = DataConfig(name="test", path=str(write_by_hand([[1, 257] * 400])), split=[1])
    with pytest.raises(
        ConfigError, match=r"holds token id 257 \(at position 1\), outside model.vocab_size=257"
    ):
        prepare_data(data, TokenizerConfig(kind="byte"), 257, SEQ, lambda _: None)
    assert prepare_data(data, TokenizerConfig(kind="byte"), 258, SEQ, lambda _: None).ln_vocab > 0

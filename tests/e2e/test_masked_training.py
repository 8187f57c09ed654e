"""BERT by the installed command: sentences of a text, two ranks, figures apart, and going on afterwards."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.e2e.launching import MLM_TRAIN, Launches

WORDS = [
    "model=bert_tiny",
    "model.seq_length=32",
    "model.hidden_size=32",
    "model.init_std=0",
    "model.dropout=0",
    "model.attention_dropout=0",
    "data=indexed",
    "data.split=[90,10,0]",
    "train.global_batch_size=4",
    "train.micro_batch_size=2",
    "optim.lr=1e-3",
    "optim.warmup_steps=1",
    "optim.decay_steps=10",
    "launch.threads=1",
]
NAMES = ("loss", "masked_loss", "order_loss", "masked_accuracy", "order_accuracy")


def test_masked_lm_trains_on_two_ranks_and_goes_on_on_one(tmp_path: Path) -> None:
    launches = Launches(tmp_path, tmp_path / "cache")
    text = "\n\n".join(f"Mr. Brown, guest {i}, came. He sat down. Nobody spoke to {i}!" for i in range(300))
    (tmp_path / "novel.txt").write_text(text)
    words = [*MLM_TRAIN, *WORDS, f"data.path={tmp_path / 'novel.txt'}", "run_dir=run"]
    first = launches.run([*words, "tp=2", "train.steps=2"])
    assert first.code == 0, first.out + first.err
    second = launches.run([*words, "tp=1", "train.steps=3", "resume=auto"])
    assert second.code == 0, second.out + second.err
    assert "training samples of two segments" in first.err
    assert "at most 4 of a sample: 0.8 [MASK], 0.1 random, 0.1 as they are" in first.out
    assert "held-out masked tokens" in second.out

    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    train = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    assert [record["step"] for record in train] == [1, 2, 3]
    assert train[0]["masked_loss"] == pytest.approx(math.log(30_522), abs=1e-4)
    assert train[0]["order_loss"] == pytest.approx(math.log(2), abs=1e-4)
    for record in train:
        assert record["loss"] == pytest.approx(record["masked_loss"] + record["order_loss"], rel=1e-6)
        assert all(math.isfinite(record[name]) for name in NAMES)
    assert train[1]["lr"] == pytest.approx(1e-3 * 8 / 9), "a straight line from step 1 to step 10"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (valid,) = [
        record for record in map(json.loads, lines) if record["kind"] == "valid" and record["step"] == 3
    ]
    assert {name: summary[f"valid_{name}"] for name in NAMES} == {name: valid[name] for name in NAMES}
    assert summary["sample"] is None

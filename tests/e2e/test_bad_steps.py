"""Steps that are not finite, and fp16's loss scale, as the command has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlm.checkpoint.folder import newest
from mlm.checkpoint.state import read_state
from tests.e2e.launching import MLM_TRAIN, TINY, Launched, Launches


@pytest.fixture
def launches(tmp_path, tmp_path_factory) -> Launches:
    return Launches(tmp_path, tmp_path_factory.getbasetemp() / "cache")


def command(*words: str) -> list[str]:
    """mlm-train with the tiny model, the words in place of what they set."""
    keys = {word.partition("=")[0] for word in words}
    return [*MLM_TRAIN, *(word for word in TINY if word.partition("=")[0] not in keys), *words]


def train_records(run_dir: Path) -> dict[int, dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return {record["step"]: record for record in lines if record["kind"] == "train"}


def poisoned(launches: Launches, *words: str) -> Launched:
    """A run in which a weight of rank 1 becomes NaN in the third step, before its update."""
    return launches.run(command("train.steps=9", *words), {"FAULT_OF_RANK_1": "poison"})


def test_a_run_that_stays_bad_ends_and_says_where_it_went_wrong(launches):
    launched = poisoned(launches, "train.max_bad_steps=2", "checkpoint.interval=1", "run_dir=bad")
    assert launched.code == 1, launched.out + launched.err
    message = (
        "step 4: loss=nan grad_norm=nan is not finite, as were 2 more in a row, and train.max_bad_steps=2 "
        "allows 2; first to go wrong was the parameter layers.1.mlp.expand.weight (rank 1); bad_step_4.json"
    )
    assert message in " ".join(launched.err.split())
    assert "Traceback" not in launched.err
    records = train_records(launches.folder / "bad")
    assert {step: record["skipped"] for step, record in records.items()} == {
        **dict.fromkeys([1, 2, 3]),
        **dict.fromkeys([4, 5, 6], "not_finite"),
    }
    known = json.loads((launches.folder / "bad" / "bad_step_4.json").read_text())
    assert (known["step"], known["bad_steps_in_a_row"], known["reproduced"]) == (4, 3, True)
    assert (known["first_sample"], known["samples"], known["parameters_after_updates"]) == (12, 4, 3)
    assert [rank["rank"] for rank in known["ranks"]] == [0, 1]
    assert known["ranks"][1]["first_bad"]["what"] == "parameter layers.1.mlp.expand.weight"
    assert (
        json.loads((launches.folder / "bad" / "errors" / "rank_1.json").read_text())["type"] == "TrainError"
    )
    # What the bad weight reaches on the other rank, g has summed.
    assert known["ranks"][0]["first_bad"]["what"] == "output of layers.1.mlp.contract"
    # No checkpoint after a bad step; what is kept is from before.
    assert newest(launches.folder / "bad" / "checkpoints").directory.name == "step_3"


def test_by_default_the_first_bad_step_ends_the_run(launches):
    launched = poisoned(launches, "run_dir=bad", "train.log_interval=9")
    assert launched.code == 1
    assert "step 4: loss=nan" in launched.err
    assert "allows none" in launched.err
    skipped = {step: r["skipped"] for step, r in train_records(launches.folder / "bad").items()}
    # The host learns of it when the window closes; until then nothing moves.
    expected = {**dict.fromkeys([1, 2, 3]), 4: "not_finite", **dict.fromkeys(range(5, 10), "halted")}
    assert skipped == expected


FP16 = [
    "precision=fp16",
    "precision.initial_loss_scale=1e6",
    "precision.scale_growth_steps=4",
    "optim.decay_steps=12",
    "model.attention_dropout=0.1",
    "checkpoint.asynchronous=false",
]


@pytest.mark.long
def test_fp16_goes_on_after_a_resume_as_if_it_had_not_been_stopped(launches):
    for words in (
        ["train.steps=12", "run_dir=unbroken"],
        ["train.steps=5", "run_dir=stopped"],
        ["train.steps=12", "run_dir=stopped", "resume=auto"],
    ):
        launched = launches.run(command(*FP16, "train.save=true", *words), timeout_s=180)
        assert launched.code == 0, launched.out + launched.err
    unbroken, stopped = (train_records(launches.folder / name) for name in ("unbroken", "stopped"))
    same = ("loss", "lr", "grad_norm", "loss_scale", "skipped", "consumed_samples")
    for step in range(1, 13):
        for key in same:
            assert repr(unbroken[step][key]) == repr(stopped[step][key]), f"{key} of step {step}"
    skipped = [step for step, record in unbroken.items() if record["skipped"]]
    assert skipped, "the scale begins too high"
    state = read_state(launches.folder / "stopped" / "checkpoints" / "step_5")
    assert state.good_steps in (1, 2, 3), "the count is on its way when the run stops"
    grown = [step for step in range(2, 13) if unbroken[step]["loss_scale"] > unbroken[step - 1]["loss_scale"]]
    assert 5 < grown[0] < 5 + 4, "and goes on from there"
    summary = json.loads((launches.folder / "stopped" / "summary.json").read_text())
    assert summary["skipped_steps"] == len(skipped)

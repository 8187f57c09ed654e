"""The installed command on real text: what it prints, what it leaves, and that the layout does not matter."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlm.config.compose import compose
from mlm.plan.flops import model_flops_per_step
from tests.e2e.launching import MLM_TRAIN, TINY, Launched, Launches


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    folder = tmp_path_factory.mktemp("training")
    return Launches(folder, folder / "cache")


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == kind]


def trained(launches: Launches, name: str, *words: str) -> Launched:
    launched = launches.run([*MLM_TRAIN, *words, f"run_dir={name}"], timeout_s=280)
    assert launched.code == 0, launched.out + launched.err
    strangers = [line for line in launched.err.splitlines() if not line.startswith("mlm-train: ")]
    assert not strangers, "on standard error only the launcher speaks in a good run"
    return launched


def test_a_run_prints_and_leaves_all_that_a_report_needs(launches):
    words = ["experiment=quickstart", "train.steps=30", "train.eval_interval=10", "optim.warmup_steps=5"]
    launched = trained(launches, "whole", *words, "train.log_interval=10", "train.sample_tokens=20")
    out = launched.out
    run_dir = launches.folder / "whole"

    assert "training a SentencePiece tokenizer" in launched.err
    assert "unigram 3.31, bigram 2.45, trigram 1.91" in out
    assert f"ln(V) = {math.log(2048):.4f}" in out
    assert "tp groups [0 1]" in out
    assert "72 B s l h^2" in out
    assert "peak unknown" in out
    assert "this model, validation text" in out
    steps = [line for line in out.splitlines() if line.startswith("step ") and "PFLOP/s" in line]
    assert [line.split()[1] for line in steps] == ["1/30", "10/30", "20/30", "30/30"]
    assert "\x1b" not in out, "plain lines where there is no terminal"

    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert config["dp"] == 1
    assert config["model"]["ffn_hidden_size"] == 768
    assert config["run_dir"] == str(run_dir)
    assert (run_dir / "train.log").read_text().count("step ") >= len(steps)
    assert json.loads((run_dir / "environment.json").read_text())
    train = records(run_dir, "train")
    assert [r["step"] for r in train] == list(range(1, 31))
    assert [r["step"] for r in records(run_dir, "valid")] == [10, 20, 30]

    composed = compose(words)
    flops = model_flops_per_step(composed.model, composed.train.global_batch_size)
    for record in train:
        assert record["consumed_samples"] == record["step"] * 8
        assert record["consumed_tokens"] == record["step"] * 8 * 128
        assert record["tokens_per_s"] == pytest.approx(8 * 128 / record["step_time_s"], rel=1e-9)
        pflops = flops / record["step_time_s"] / 1e15
        assert record["throughput_pflops"] == pytest.approx(pflops, rel=1e-9)
    assert train[0]["lr"] == pytest.approx(2e-3 / 5)
    assert train[4]["lr"] == 2e-3
    assert train[-1]["lr"] == 1e-4
    assert train[0]["loss"] == pytest.approx(math.log(2048), abs=0.2)
    assert train[-1]["loss"] < 6.2

    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["steps"] == 30
    characters = summary["valid_loss"] * summary["valid_tokens"] / summary["valid_nats_per_character"]
    assert characters == pytest.approx(111_540, abs=10)
    assert len(summary["sample"]) > 20
    assert Path(summary["checkpoint"], "manifest.json").is_file()

    again = launches.run([*MLM_TRAIN, *words, f"run_dir={run_dir}"])
    assert again.code == 2
    assert "run_dir" in again.err


LAYOUTS = {
    "tp1": ["tp=1"],
    "tp2": ["tp=2"],
    "dp2": ["tp=1", "dp=2", "train.micro_batch_size=2"],
    "tp2dp2_accumulated": ["tp=2", "dp=2", "train.micro_batch_size=1"],
}


def test_the_command_counts_and_learns_the_same_at_every_layout(launches):
    seen = {}
    for name, words in LAYOUTS.items():
        base = [w for w in TINY if not w.startswith(("tp=", "train.final", "train.micro", "train.save"))]
        base += [] if any("micro_batch" in w for w in words) else ["train.micro_batch_size=4"]
        base += ["train.final_eval_samples=64"]
        trained(launches, name, *base, "model.dropout=0", "model.attention_dropout=0", *words)
        run = launches.folder / name
        valid = records(run, "valid")[-1]
        seen[name] = (records(run, "train"), valid)
    reference, reference_valid = seen["tp1"]
    for name, (train, valid) in seen.items():
        for ours, theirs in zip(train, reference, strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5), name
            assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-5), name
            assert ours["consumed_tokens"] == theirs["consumed_tokens"] == ours["step"] * 4 * 64, name
        assert valid["loss"] == pytest.approx(reference_valid["loss"], rel=1e-5), name
        assert valid["tokens"] == reference_valid["tokens"], name


def test_peak_memory_of_a_rank_falls_with_tp(launches):
    peaks = {}
    for tp in (1, 2):
        words = ["model=gpt2_small_cpu", f"tp={tp}", "train.steps=1", "train.global_batch_size=1"]
        words += ["train.micro_batch_size=1", "model.seq_length=64", "optim.warmup_steps=0"]
        off = ["train.final_eval=false", "train.save=false", "train.sample_tokens=0"]
        trained(launches, f"memory{tp}", *words, *off)
        summary = json.loads((launches.folder / f"memory{tp}" / "summary.json").read_text())
        peaks[tp] = summary["peak_memory_bytes_rank0"]
    # 64 million parameters at 16 bytes are 1.0 GB; half of them go, the interpreter and torch stay.
    assert peaks[1] - peaks[2] > 0.4e9, peaks


@pytest.mark.parametrize("kind", ["wandb", "tensorboard"])
def test_other_loggers_need_no_account_and_no_terminal(launches, kind):
    bare = {"WANDB_API_KEY": "", "HOME": str(launches.folder), "NETRC": str(launches.folder / "none")}
    words = [*TINY, f"logger={kind}", f"run_dir={kind}"]
    launched = launches.run([*MLM_TRAIN, *words], bare, timeout_s=150)
    assert launched.code == 0, launched.out + launched.err
    run_dir = launches.folder / kind
    assert [r["step"] for r in records(run_dir, "train")] == [1, 2, 3, 4]
    if kind == "wandb":
        assert "recording offline" in launched.out
        assert list(run_dir.glob("wandb/offline-run-*/*.wandb")), "the run is there to be uploaded"
    else:
        assert list((run_dir / "tensorboard").glob("events.*"))


def test_two_hundred_steps_of_the_character_recipe_are_the_same_at_tp_2(launches):
    words = ["experiment=shakespeare_char", "train.steps=200", "optim.decay_steps=2000", "train.save=false"]
    words += ["train.eval_interval=0", "train.sample_tokens=0"]
    losses = {}
    for tp in (1, 2):
        trained(launches, f"char{tp}", *words, f"tp={tp}")
        run = launches.folder / f"char{tp}"
        losses[tp] = [r["loss"] for r in records(run, "train")] + [records(run, "valid")[-1]["loss"]]
    for step, (one, two) in enumerate(zip(losses[1], losses[2], strict=True), 1):
        assert abs(one - two) < 1e-3, f"step {step}: {one} at tp=1, {two} at tp=2"
    assert losses[1][-1] < 2.7


def test_training_does_not_notice_that_it_is_validated(launches):
    base = [w for w in TINY if not w.startswith("tp=")]
    losses = []
    for name, interval in (("often", 1), ("never", 0)):
        trained(launches, name, *base, "model.dropout=0.5", f"train.eval_interval={interval}")
        losses.append([r["loss"] for r in records(launches.folder / name, "train")])
    assert losses[0] == losses[1], "to the last digit"


def test_a_loss_that_is_no_number_ends_the_run_with_its_step(launches):
    words = [*TINY, "tp=1", "optim.lr=1e30", "optim.min_lr=1e30", "optim.clip_grad_norm=null"]
    words.remove("tp=2")
    launched = launches.run([*MLM_TRAIN, *words, "run_dir=diverged"])
    assert launched.code == 1
    assert "is not finite" in launched.err + launched.out
    assert "Traceback" not in launched.err + launched.out


def test_bf16_follows_fp32_closely(launches):
    base = [w for w in TINY if not w.startswith("tp=")] + ["model.dropout=0", "model.attention_dropout=0"]
    losses = {}
    for precision in ("fp32", "bf16"):
        trained(launches, precision, *base, "tp=2", f"precision={precision}")
        losses[precision] = [r["loss"] for r in records(launches.folder / precision, "train")]
    assert losses["bf16"] != losses["fp32"], "bf16 really computes in bf16"
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=5e-3)


@pytest.mark.skipif(not os.environ.get("MLM_TEST_DATA"), reason="set MLM_TEST_DATA to a folder with classics")
def test_an_own_text_file_trains_without_more_ado(launches, tmp_path):
    source = Path(os.environ["MLM_TEST_DATA"]) / "classics" / "classics_small.jsonl"
    text = "\n".join(json.loads(line)["text"] for line in source.read_text().splitlines()[:3])
    (tmp_path / "book.txt").write_text(text)
    out = trained(launches, "own_text", *TINY, f"data.path={tmp_path / 'book.txt'}").out
    assert "book.txt" in out

"""The printed plan, checked against the paper's numbers and arithmetic done here."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from mlm.config.compose import compose
from mlm.config.schema import BlendPart, DataConfig, TrainConfig, TrainLoopConfig
from mlm.data.indexed import IndexedWriter
from mlm.launch.dry_run import show
from mlm.launch.machine import Machine
from mlm.launch.preflight import preflight
from tests.unit.launch.machines import LAPTOP, config, gpt2_8b, gpu_machine


def plan(
    asked: TrainConfig,
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    overrides: list[str] | None = None,
) -> str:
    launch, notes = preflight(asked, machine, {}, cwd=Path("/tmp"), now=datetime(2026, 3, 1, 12, 30, 5))
    show(asked, launch, machine, notes, overrides or ["tp=2", "launch=dry_run"], [])
    # Columns are padded; the words are what counts.
    return "\n".join(" ".join(line.split()) for line in capsys.readouterr().out.splitlines())


def test_the_papers_model_at_its_degree(capsys: pytest.CaptureFixture[str]) -> None:
    asked = config(tp=8, dp=64, mode="dry_run", of_model=gpt2_8b())
    text = plan(asked, LAPTOP, capsys, ["model=gpt2_8b", "tp=8", "dp=64", "launch=dry_run"])
    for words in (
        "8,317,040,640 with the padded vocabulary of 51,200",
        "8,314,143,744 with the 50,257 tokens",
        "1,043,549,184 at tp=8",
        "15.6 GiB; activations come on top",
        "512 = tp 8 x pp 1 x dp 64",
        "64 groups that share each layer: [0 1 ... 7] [8 9 ... 15]",
        "8 groups that hold the same parameters: [0 8 ... 504]",
        "tokens 524,288",
        "300,000, 157,286,400,000 tokens",
        "torchrun --nnodes=64 --nproc-per-node=8",
        "-m mlm.cli.train model=gpt2_8b tp=8 dp=64",
        "srun --nodes=64 --ntasks-per-node=8 mlm-train model=gpt2_8b tp=8 dp=64",
        "could it run here no",
    ):
        assert words in text, f"{words!r} not in:\n{text}"
    # Narayanan et al. 2021 without recomputation: 72 B s l h^2 (1 + s/6h + V/12lh)
    b, s, n, h, v = 512, 1024, 72, 3072, 51200
    assert f"{72 * b * s * n * h * h * (1 + s / (6 * h) + v / (12 * n * h)) / 1e15:.4g} PFLOP" in text
    assert "launch=dry_run shows" not in text


def test_what_runs_here_is_said_with_the_two_ways_to_start_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(
        config(tp=2, mode="dry_run"), gpu_machine(2), capsys, ["tp=2", "data.path=/a b", "launch=dry_run"]
    )
    assert "mlm-train tp=2 'data.path=/a b'\n" in text
    assert "torchrun --nproc-per-node=2 -m mlm.cli.train tp=2 'data.path=/a b'\n" in text
    assert "python -m mlm.train.worker /tmp/runs/tiny-20260301-123005/config.yaml" in text
    assert "could it run here yes, on cuda" in text
    assert "--nnodes" not in text


def test_what_the_run_begins_with_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "begins at step 0, with random weights" in plan(config(mode="dry_run"), LAPTOP, capsys)
    directory = tmp_path / "r" / "checkpoints" / "step_20"
    directory.mkdir(parents=True)
    for name in ("config.yaml", "data.json", "manifest.json"):
        (directory / name).write_text('{"format": 1, "step": 20, "files": {}, "about": {}}')
    (tmp_path / "r" / "config.yaml").write_text("")
    asked = config(mode="dry_run")
    # One after the other: another run, its weights, and the run itself.
    for changes, begins in [
        ({"resume": str(tmp_path / "r")}, f"begins with step 21, from {directory}"),
        ({"init_from": str(directory)}, f"begins at step 0, with the weights of {directory}"),
        ({"resume": "auto", "run_dir": str(tmp_path / "r")}, f"begins with step 21, from {directory}"),
        ({"resume": "auto", "run_dir": str(tmp_path / "s")}, "begins at step 0, with random weights"),
        ({"resume": "/nowhere"}, "begins nothing: what it was to begin with cannot be used"),
    ]:
        said = plan(replace(asked, **changes), LAPTOP, capsys)
        assert begins.replace(" ", "") in said.replace("\n", "").replace(" ", "")


def test_epochs_are_counted_where_tokens_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    asked = dataclasses.replace(
        config(mode="dry_run"), train=TrainLoopConfig(steps=100, global_batch_size=12, micro_batch_size=12)
    )
    text = plan(asked, LAPTOP, capsys)
    # bytes of the first 90 % of the embedded text, all ASCII, in samples of 64 tokens
    assert "of 1,003,854 training tokens" in text
    assert f"epochs {1200 / (1_003_854 // 64 - 0):.2f}" in text


def test_batch_arithmetic_counts_micro_batches(capsys: pytest.CaptureFixture[str]) -> None:
    asked = dataclasses.replace(
        config(dp=2, mode="dry_run"), train=TrainLoopConfig(global_batch_size=48, micro_batch_size=8)
    )
    assert "48 samples = dp 2 x 3 micro batches x 8 samples" in plan(asked, LAPTOP, capsys)


def test_epochs_of_a_blend_are_those_of_each_dataset(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, documents in (("a", 30), ("b", 10)):
        with IndexedWriter(tmp_path / name, vocab_size=257) as writer:
            for _ in range(documents):
                writer.add_document([1] * 200)
    asked = config(mode="dry_run")
    parts = [(0.25, "a"), (0.75, "b"), (0.0, "b")]
    blend = [BlendPart(weight=weight, path=str(tmp_path / name)) for weight, name in parts]
    asked = dataclasses.replace(
        asked,
        data=DataConfig(name="blend", blend=blend, split=[90, 10, 0]),
        train=TrainLoopConfig(steps=10, global_batch_size=40),
        model=dataclasses.replace(asked.model, seq_length=64),
    )
    text = plan(asked, LAPTOP, capsys)
    assert "data blend: 3 datasets by weight" in text
    for name, tokens, samples, weight in (("a", 27 * 200, 100, 0.25), ("b", 9 * 200, 300, 0.75)):
        each = (tokens - 64) // 64
        of = f"{samples / each:.2f}, each {each} samples of {tokens:,} training tokens"
        assert f"epochs, {name} {of}; weight {weight:g}, {samples} samples" in text
    assert "epochs, b weight 0: not read" in text


def test_pairs_of_sentences_are_not_counted_before_they_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with IndexedWriter(tmp_path / "d", 30_522) as writer:
        writer.add_sentences([list(range(2000, 2050))] * 20)
    words = ["experiment=bert_megatron", f"data.path={tmp_path / 'd'}", "data.split=[1,0,0]", "tp=2"]
    text = plan(compose(words), LAPTOP, capsys)
    assert "epochs known once the sentences of 1,000 training tokens are paired" in text
    assert "6 B h (K(V + h) + h + 2), K = 76" in text

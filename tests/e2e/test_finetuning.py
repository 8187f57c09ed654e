"""A fine-tuning as a user types it, at tp=2 from another program's BERT, and its evaluation."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.e2e.launching import BIN
from tests.foreign import made, saved, words


def race_file(path: Path, count: int, seed: int) -> Path:
    """The right option is a word of the passage; the wrong ones are not in it."""
    draw, lines = random.Random(seed), []
    for number in range(count):
        drawn = draw.sample(range(80), 8)
        options = [f"w{word}" for word in drawn[:4]]
        answer = draw.randrange(4)
        passage = [*(f"w{word}" for word in drawn[4:]), options[answer]]
        lines.append(
            {
                "article": " ".join(passage),
                "questions": ["w1 w2"],
                "options": [options],
                "answers": ["ABCD"[answer]],
                "id": f"{'high' if number % 2 else 'middle'}{number}.txt",
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def ended(command: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command), *arguments, "launch.threads=1"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )


def run(command: str, *arguments: str, cwd: Path) -> str:
    done = ended(command, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finetuning")
    (folder / "bert").mkdir()
    saved(made("BertModel"), folder / "bert")
    words(folder / "bert", 90)
    race_file(folder / "train.jsonl", 24, 1)
    race_file(folder / "dev.jsonl", 10, 2)
    said = run(
        "mlm-train",
        "finetune=race",
        "init_from=bert",
        "finetune.train_path=train.jsonl",
        "finetune.dev_path=dev.jsonl",
        "tp=2",
        "train.global_batch_size=8",
        "train.micro_batch_size=4",
        "finetune.epochs=2",
        "checkpoint.keep_last=1",
        "run_dir=first",
        cwd=folder,
    )
    (folder / "said.txt").write_text(said)
    return folder


def test_a_fine_tuning_says_what_it_does_and_keeps_its_best_checkpoint(home: Path):
    said = " ".join((home / "said.txt").read_text().split())
    assert "drawn anew, as it has none: task_head.weight, task_head.bias" in said
    assert "Table 6, 336M: batch 32, lr 2e-05, 3 epochs; here batch is 8, epochs is 2" in said
    assert "24 samples, 6 steps of 8 are 2.00 epochs" in said
    summary = json.loads((home / "first" / "summary.json").read_text())
    lines = [json.loads(line) for line in (home / "first" / "metrics.jsonl").read_text().splitlines()]
    valid = {line["step"]: line for line in lines if line["kind"] == "valid"}
    assert list(valid) == [3, 6]
    for line in valid.values():
        assert line["accuracy_95_low"] <= line["accuracy"] <= line["accuracy_95_high"]
        # Five questions of each school.
        mean = (line["accuracy_middle"] + line["accuracy_high"]) / 2
        assert line["accuracy"] == pytest.approx(mean, abs=1e-12)
    best = max(valid.values(), key=lambda line: line["accuracy"])  # the first of equals
    assert summary["best"] == {"step": best["step"], "figure": "accuracy", "value": best["accuracy"]}
    name = (home / "first" / "checkpoints" / "best").read_text().splitlines()[0]
    assert name == f"step_{best['step']}"
    assert (home / "first" / "checkpoints" / name / "manifest.json").is_file()


def test_predictions_lead_to_the_accuracy_and_mlm_eval_finds_the_same(home: Path):
    run(
        "mlm-eval",
        "checkpoint=first/checkpoints/step_6",
        "ensemble=[first/checkpoints/best,first]",
        "tasks=[race]",
        "out=evaluated",
        cwd=home,
    )
    (found,) = json.loads((home / "evaluated" / "eval.json").read_text())["tasks"]
    lines = [json.loads(line) for line in (home / "first" / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(lines) if line["kind"] == "valid")
    assert found["members"][0]["accuracy"] == found["members"][2]["accuracy"] == last["accuracy"]
    rows = [json.loads(line) for line in (home / "evaluated" / "predictions.jsonl").read_text().splitlines()]
    share = sum(row["prediction"] == row["truth"] for row in rows) / len(rows)
    assert share == pytest.approx(found["figures"]["accuracy"]["value"], abs=1e-12)
    assert all(sum(row["scores"]) == pytest.approx(1, abs=1e-9) for row in rows)
    before = (home / "first" / "predictions" / "step_6.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in before] == [row["id"] for row in rows]


def test_an_evaluation_of_another_task_is_refused(home: Path):
    done = ended("mlm-eval", "checkpoint=first", "tasks=[mnli]", "task_paths.mnli=dev.jsonl", cwd=home)
    assert done.returncode == 2
    assert "was trained for race, not for mnli" in done.stderr

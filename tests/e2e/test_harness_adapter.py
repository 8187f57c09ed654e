"""lm-evaluation-harness on a checkpoint of ours at tp=1 and 2, beside its own model of the same weights."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlm.eval.wikitext import documents
from tests.e2e.test_harness_agreement import ROOT, texts
from tests.random_run import GPT2, write_run

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("lm_eval", "transformers", "accelerate")),
    reason="lm_eval, transformers or accelerate is not installed: pip install -e '.[harness]'",
)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "first", *GPT2)


def write_files(folder: Path) -> None:
    raw, passages = texts()
    last = [passage.rpartition(" ")[2] for passage in passages]
    # The first part of a question is cut off before a space, or behind one, two or three.
    questions = [
        {
            "question": passage.rpartition(" ")[0] + " " * (n % 4),
            "choices": [last[n - 1], last[n], f"{last[n - 2]} {last[n - 1]}"],
            "answer": 1,
        }
        for n, passage in enumerate(passages[:20])
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "pages": [{"page": page} for page in documents(raw)],
        "lambada": [{"text": passage} for passage in passages],
        "choices": questions,
        "stories": [{"text": passage[: 20 + 40 * n]} for n, passage in enumerate(passages[:12])],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def numbers(answers: Any) -> list[float]:
    """All numbers in nested lists, in order; True and False count."""
    if isinstance(answers, list):
        return [number for answer in answers for number in numbers(answer)]
    return [] if isinstance(answers, str) else [float(answers)]


def strings(answers: Any) -> list[str]:
    if isinstance(answers, list):
        return [text for answer in answers for text in strings(answer)]
    return [answers] if isinstance(answers, str) else []


def test_every_figure_and_every_answer_is_that_of_lm_evals_own_model_at_tp_1_and_2(run_dir, tmp_path):
    write_files(tmp_path)
    command = [sys.executable, "-W", "ignore", "-m", "tests.e2e.harness_adapter", str(run_dir), str(tmp_path)]
    harness = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580)
    assert harness.returncode == 0, harness.stderr[-4000:]
    found = json.loads(harness.stdout.splitlines()[-1])
    theirs = found.pop("hf")
    assert theirs.keys() == {"wikitext", "lambada_openai", "choices", "stories", "single"}
    assert sorted(found) == ["tp=1", "tp=2"]
    for model, ours in found.items():
        for task, expected in theirs.items():
            assert strings(ours[task]["answers"]) == strings(expected["answers"]), f"{task} at {model}"
            close = pytest.approx(numbers(expected["answers"]), rel=1e-5)
            assert numbers(ours[task]["answers"]) == close, f"{task} at {model}"
            assert ours[task]["figures"] == pytest.approx(expected["figures"], rel=1e-5), f"{task} at {model}"
    # What could agree for want of content.
    single = theirs["single"]["answers"]
    assert len(set(strings(single))) > 10
    assert {greedy for _, greedy in single[1]} == {True, False}
    assert 0 < theirs["choices"]["figures"]["acc,none"] < 1
    assert theirs["wikitext"]["figures"]["word_perplexity,none"] > 1


def test_the_command_runs_a_task_of_a_file_at_tp_2_and_writes_its_results(run_dir, tmp_path):
    write_files(tmp_path)
    task = {
        "task": "of_mine",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "choices.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
    }
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "of_mine.yaml").write_text(yaml.safe_dump(task))
    options = ["--tasks", "of_mine", "--include_path", "tasks", "--output_path", "results", "--limit", "5"]
    command = [str(Path(sys.executable).parent / "mlm-harness"), f"checkpoint={run_dir}", "tp=2", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "|of_mine|" in done.stdout
    (written,) = (tmp_path / "results").rglob("results_*.json")
    config = json.loads(written.read_text())["config"]
    assert config["model"] == "mlm"
    assert config["model_layout"] == {"tp": 2, "dp": 1, "device": "cpu"}
    assert config["model_checkpoint"] == str(run_dir / "checkpoints" / "step_3")

    command[2] = "tp=3"
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert refused.returncode == 2, refused.stderr[-4000:]
    assert "mlm-harness: 1 problem, no result was written\n  tp=3  does not divide" in refused.stderr

"""A trained GPT-2, evaluated by us and, in transformers' model, by lm-evaluation-harness itself."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlm.eval.wikitext import documents
from tests.e2e.launching import MLM_EVAL, MLM_TRAIN, Launches
from tests.unit.eval.test_lambada import PASSAGES
from tests.unit.eval.test_wikitext import ARTICLES

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("lm_eval", "transformers", "accelerate")),
    reason="lm_eval, transformers or accelerate is not installed: pip install -e '.[harness]'",
)

MODEL = ["model=gpt2_tiny", "tokenizer=gpt2", "model.vocab_size=50257", "model.padded_vocab_size=50304"]
SHORT = ["model.seq_length=128", "train.steps=60", "train.global_batch_size=8", "optim.lr=3e-3"]
ROOT = Path(__file__).parents[2]


def texts() -> tuple[str, list[str]]:
    """A raw text of articles and passages: the beginnings of the real files where they are at hand."""
    data = os.environ.get("MLM_TEST_DATA")
    if not data:
        return ARTICLES, PASSAGES
    raw = (Path(data) / "wikitext-raw" / "wiki.test.raw").read_text().splitlines(keepends=True)
    passages = (Path(data) / "lambada" / "lambada_test.jsonl").read_text().splitlines()
    return "".join(raw[:120]), [json.loads(line)["text"] for line in passages[:60]]


def test_the_harness_itself_gives_our_figures_to_four_digits(tmp_path):
    launches = Launches(tmp_path, tmp_path / "cache")
    raw, passages = texts()
    (tmp_path / "wiki.test.raw").write_text(raw)
    pages, lambada = tmp_path / "pages.jsonl", tmp_path / "lambada.jsonl"
    pages.write_text("".join(json.dumps({"page": page}) + "\n" for page in documents(raw)))
    lambada.write_text("".join(json.dumps({"text": text}) + "\n" for text in passages))

    job = launches.run([*MLM_TRAIN, *MODEL, *SHORT, "tp=2", "run_dir=run"], timeout_s=280)
    assert job.code == 0, job.out + job.err
    files = ["task_paths.wikitext103=wiki.test.raw", "task_paths.wikitext103.raw=wiki.test.raw"]
    files += ["task_paths.lambada=lambada.jsonl"]
    job = launches.run([*MLM_EVAL, "checkpoint=run", "tp=2", *files, "out=ours"], timeout_s=280)
    assert job.code == 0, job.out + job.err
    ours = json.loads((tmp_path / "ours" / "eval.json").read_text())

    command = [sys.executable, "-W", "ignore", "-m", "tests.e2e.harness", str(tmp_path / "run")]
    harness = subprocess.run(
        [*command, str(pages), str(lambada)], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert harness.returncode == 0, harness.stderr[-4000:]
    theirs = json.loads(harness.stdout.splitlines()[-1])

    def figure(task: str, row: str, name: str) -> float:
        rows = next(t for t in ours["tasks"] if t["task"] == task)["rows"]
        return float(next(r for r in rows if r["variant"] == row)["figures"][name])

    for name in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        expected = theirs["wikitext"][f"{name},none"]
        assert figure("wikitext103", "lm-eval wikitext", name) == pytest.approx(expected, rel=1e-4), name
    for name in ("perplexity", "acc"):
        expected = theirs["lambada_openai"][f"{name},none"]
        assert figure("lambada", "lm-eval lambada_openai", name) == pytest.approx(expected, rel=1e-4), name

"""The processes that compute for lm-evaluation-harness: their answers, their failures and their end."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from mlm.errors import LaunchError
from mlm.eval.load import load_for_evaluation
from mlm.eval.requests import Segment
from mlm.eval.score import score
from mlm.harness.messages import Drawing, Prompt
from mlm.harness.settings import settle
from mlm.harness.workers import Workers
from mlm.parallel.mesh import Mesh
from tests.random_run import write_run

ROOT = Path(__file__).parents[2]
ASKER = """
import sys, time
from mlm.harness.settings import settle
from mlm.harness.workers import Workers
workers = Workers(settle({"checkpoint": sys.argv[1], "tp": 2}))
print("ready", flush=True)
time.sleep(120)
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "first")


def descendants(pid: int | None = None) -> dict[int, list[str]]:
    """pid -> command line of the processes of the model that pid (this process) has started."""
    children = psutil.Process(pid).children(recursive=True)
    return {child.pid: line for child in children if "mlm.harness" in " ".join(line := child.cmdline())}


def assert_gone(pids: dict[int, list[str]], within_s: float) -> None:
    end = time.monotonic() + within_s
    while left := [pid for pid in pids if psutil.pid_exists(pid)]:
        assert time.monotonic() < end, f"{left} of {pids} are still there after {within_s:g} s"
        time.sleep(0.05)


def test_workers_answer_as_one_process_does_and_a_dead_one_is_an_error_that_says_so(run_dir, tmp_path):
    cpu = torch.device("cpu")
    loaded = load_for_evaluation(run_dir, mesh=Mesh.single(), device=cpu)
    draw = np.random.default_rng(1)
    segments = [Segment(draw.integers(0, 257, n), s) for n, s in [(129, 40), (9, 8), (2, 1), (60, 5)]]
    alone = score(
        loaded.model,
        segments,
        seq_length=128,
        vocab_size=257,
        batch_tokens=1024,
        mesh=Mesh.single(),
        device=cpu,
    )
    workers = Workers(settle({"checkpoint": str(run_dir), "tp": 2, "dp": 2, "batch_tokens": 128}))
    pids = descendants()
    assert len(pids) == 5, pids
    told: list[tuple[int, int]] = []
    scores = workers.score(segments, lambda *progress: told.append(progress))
    np.testing.assert_allclose(scores.nll, alone.nll, rtol=1e-5)
    assert scores.all_greedy.tolist() == alone.all_greedy.tolist()
    assert told[-1] == (196, 196)
    prompts = [Prompt(number, draw.integers(0, 256, 5)) for number in range(5)]
    texts = workers.generate(prompts, Drawing(8), seed=0)
    assert texts == [workers.generate([prompt], Drawing(8), seed=0)[0] for prompt in prompts]
    assert workers.score([]).nll.shape == (0,)

    ranks = sorted(pid for pid, line in pids.items() if "mlm.harness.worker" in line)
    psutil.Process(ranks[3]).kill()
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(LaunchError, match="rank 3 was killed by SIGKILL"):
            workers.score(segments)
        assert time.monotonic() - began < 30
    assert_gone(pids, 0)
    workers.close()


def test_workers_end_with_close_and_with_a_process_that_is_killed(run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    workers = Workers(settle({"checkpoint": str(run_dir)}))
    pids = descendants()
    assert len(pids) == 2, pids
    workers.close()
    workers.close()
    assert_gone(pids, 0)

    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(run_dir)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert asker.stdout is not None
    assert asker.stdout.readline() == "ready\n"
    pids = descendants(asker.pid)
    assert len(pids) == 3, pids
    asker.send_signal(signal.SIGKILL)
    asker.communicate()
    assert_gone(pids, 15)
    assert list(tmp_path.glob("mlm_*")) == []


def test_what_stops_a_worker_at_its_start_is_told_in_its_words(run_dir, tmp_path):
    settings = settle({"checkpoint": str(run_dir)})
    settings.config.checkpoint = str(tmp_path / "gone")
    with pytest.raises(LaunchError, match=r"rank 0 stopped the run: checkpoint=.*gone does not exist"):
        Workers(settings)
    assert descendants() == {}

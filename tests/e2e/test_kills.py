"""A run that is killed at random moments, 5 or in the long tests 20, ends like one that is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_runs_killed_at_random_moments_end_with_the_loss_of_an_undisturbed_one(
    tmp_path: Path, kills: int
) -> None:
    script = [sys.executable, str(ROOT / "scripts" / "kill_test.py")]
    done = subprocess.run(
        [*script, "--kills", str(kills), "--steps", "150", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed, runs = re.match(r"(\d+) kills, \d+ of the launcher alone, in (\d+) runs", done.stdout).groups()
    assert int(killed) == kills
    # At the earliest a kill takes back an interval and the steps done while the checkpoint was being written.
    lost = int(re.search(r"at most (\d+) steps done again, a checkpoint every 2 steps", done.stdout)[1])
    assert lost <= 4
    assert "0 checkpoints that had a name and were not whole" in done.stdout
    finals = {final_loss(path) for path in [tmp_path / "undisturbed", *tmp_path.glob("killed_*[0-9]")]}
    assert len(finals) == 1
    assert len(list(tmp_path.glob("killed_*[0-9]"))) == int(runs)


def final_loss(run: Path) -> tuple[int, float]:
    """The last training step of a run's metrics and its loss; the last line that says so holds."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    last = [record for record in lines if record["kind"] == "train"][-1]
    assert (run / "summary.json").exists(), "the run has finished"
    return last["step"], last["loss"]

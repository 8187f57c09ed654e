"""What tests of the launch share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launch.slurm_commands import FakeSlurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A cluster of 10 nodes without GPUs, whose sbatch takes every job."""
    monkeypatch.chdir(tmp_path)
    fake = FakeSlurm(tmp_path)
    fake.command("sinfo", prints="short*|10|(null)")
    fake.command("sbatch", prints="4711")
    fake.command("squeue")
    return fake

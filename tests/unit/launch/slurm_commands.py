"""A PATH on which Slurm's commands are small scripts that answer as a test says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlm.launch.start import start
from mlm.launch.training import TRAIN


class FakeSlurm:
    """Commands in a folder of their own. What each was called with stands in FOLDER/NAME.called."""

    def __init__(self, folder: Path):
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.environment = {"PATH": f"{self.folder}:/usr/bin:/bin"}

    def command(self, name: str, prints: str = "", complains: str = "", code: int = 0) -> None:
        lines = [
            "#!/bin/bash",
            f'printf "%s\\n" "$@" >> {self.folder}/{name}.called',
            f"cat <<'END'\n{prints}\nEND" if prints else ":",
            f"cat >&2 <<'END'\n{complains}\nEND" if complains else ":",
            f"exit {code}",
        ]
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)

    def called(self, name: str) -> list[str]:
        path = self.folder / f"{name}.called"
        return path.read_text().splitlines() if path.exists() else []


TYPED = [
    "model=gpt2_tiny",
    "launch=slurm",
    "tp=2",
    "dp=4",
    "train.global_batch_size=32",
    "launch.device=cpu",
    "launch.devices_per_node=4",
    "launch.partition=short",
    "launch.time_limit=02:00:00",
    "launch.threads=3",
    'launch.sbatch_options=["--qos=high"]',
    "run_dir=a run",
]
"""A run on two nodes of a cluster without GPUs."""


def submit(slurm: FakeSlurm, words: Sequence[str] = TYPED, **environment: str) -> int:
    """Do what mlm-train would where only these commands exist; returns its exit code."""
    variables = slurm.environment | environment
    return start(TRAIN, words, [], typed=["mlm-train", *words], environment=variables)

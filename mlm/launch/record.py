"""What a run directory says about how the run was started: config, overrides, environment."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlm
from mlm.config.store import save_config
from mlm.files import write_whole
from mlm.launch.machine import Machine

_PACKAGES = (
    "torch",
    "numpy",
    "hydra-core",
    "omegaconf",
    "sentencepiece",
    "tokenizers",
    "wandb",
    "tensorboard",
)
_PREFIXES = ("CUDA_", "NCCL_", "GLOO_", "OMP_", "MKL_", "MALLOC_", "SLURM_", "TORCH", "MLM_", "PYTORCH_")


def write_run_files(
    run_dir: Path,
    config: Any,
    machine: Machine,
    *,
    overrides: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
) -> Path:
    """Write config.yaml (resolved), overrides.txt and environment.json; returns the path of config.yaml."""
    write_whole(run_dir / "overrides.txt", "".join(f"{override}\n" for override in overrides))
    about = describe_environment(machine, command=command, environment=environment)
    write_whole(run_dir / "environment.json", json.dumps(about, indent=2) + "\n")
    path = run_dir / "config.yaml"
    save_config(config, path)
    return path


def describe_environment(
    machine: Machine, *, command: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Versions, code, machine and the environment variables that bear on results; JSON-ready."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(command),
        "working_directory": os.getcwd(),
        "versions": {"python": platform.python_version(), "mlm": mlm.__version__, **_versions()},
        "source": source_state(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "machine": asdict(machine),
        "environment": {
            name: value for name, value in sorted(environment.items()) if name.startswith(_PREFIXES)
        },
        "python": sys.executable,
    }


def source_state() -> dict[str, Any] | None:
    """Commit of the checkout mlm runs from and whether it was edited since; None when it is none."""
    root = Path(mlm.__file__).resolve().parent.parent
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "modified": bool(_git(root, "status", "--porcelain", "--untracked-files=no"))}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found

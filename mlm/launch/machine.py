"""What this machine offers a launch. Imports no torch and touches no accelerator."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm.launch import limits, nvml
from mlm.launch.nvml import Accelerator


@dataclass(frozen=True)
class Machine:
    """Cores, bytes of memory and CUDA devices this process may use, and the installed torch."""

    cores: int
    memory_bytes: int
    accelerators: tuple[Accelerator, ...] = ()
    torch_version: str | None = None
    torch_cuda: str | None = None
    """CUDA version the installed torch was built with; None for a CPU build or no torch."""
    host: str = ""

    @property
    def can_use_cuda(self) -> bool:
        return bool(self.accelerators) and self.torch_cuda is not None


def detect_machine(
    environment: Mapping[str, str] | None = None,
    *,
    root: Path = Path("/"),
    library: Any | None = None,
    torch_folder: Path | None = None,
) -> Machine:
    """Look at this machine; root, library (NVML) and torch_folder replace the real ones in tests."""
    environment = os.environ if environment is None else environment
    library = nvml.load_library() if library is None else library
    gpus = nvml.list_gpus(library) if library is not None else []
    version, cuda = torch_build(_torch_folder() if torch_folder is None else torch_folder)
    return Machine(
        cores=limits.usable_cores(root),
        memory_bytes=limits.available_memory(root),
        accelerators=nvml.visible(gpus, environment.get("CUDA_VISIBLE_DEVICES")),
        torch_version=version,
        torch_cuda=cuda,
        host=socket.gethostname(),
    )


def torch_build(folder: Path | None) -> tuple[str | None, str | None]:
    """(version, CUDA version) of the torch package in a folder, read from its version.py unimported."""
    try:
        text = (folder / "version.py").read_text() if folder is not None else ""
    except OSError:
        text = ""
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return version[1] if version else None, cuda[1] if cuda else None


def _torch_folder() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None

"""megatron-core's own reader and writer of token datasets, loaded from its source files alone.

The package as a whole asks for a GPU's libraries; these files do not. MLM_MEGATRON_CORE names a folder that
holds `megatron/core/` (an unpacked wheel); without it an installed megatron-core is looked for.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def indexed_dataset(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module megatron.core.datasets.indexed_dataset; skips the test where there is none."""
    core = _folder()
    if core is None:
        pytest.skip("megatron-core is neither installed nor unpacked in the folder MLM_MEGATRON_CORE names")
    for name, folder in (
        ("megatron", core.parent),
        ("megatron.core", core),
        ("megatron.core.datasets", core / "datasets"),
    ):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        monkeypatch.setitem(sys.modules, name, package)
    # The one helper that those files take from the large module of helpers, which logs on one rank.
    helpers = ModuleType("megatron.core.utils")
    helpers.log_single_rank = lambda *args, **kwargs: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core.utils", helpers)
    for name in ("msc_utils", "datasets.object_storage_utils", "datasets.indexed_dataset"):
        module = _load(f"megatron.core.{name}", core / (name.replace(".", "/") + ".py"), monkeypatch)
    return module


def _folder() -> Path | None:
    if named := os.environ.get("MLM_MEGATRON_CORE"):
        core = Path(named) / "megatron" / "core"
        assert (core / "datasets" / "indexed_dataset.py").is_file(), (
            f"MLM_MEGATRON_CORE={named} holds no megatron/core"
        )
        return core
    found = importlib.util.find_spec("megatron")
    for location in (found.submodule_search_locations or []) if found else []:
        if (Path(location) / "core" / "datasets" / "indexed_dataset.py").is_file():
            return Path(location) / "core"
    return None


def _load(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module

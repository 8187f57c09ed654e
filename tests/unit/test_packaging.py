"""Every package and configuration group of the source tree is in the list the wheel is built from."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_lists_every_package_and_the_configurations():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {".".join(init.parent.relative_to(ROOT).parts) for init in (ROOT / "mlm").rglob("__init__.py")}
    assert set(setuptools["packages"]) == found | {"mlm.configs"}
    assert setuptools["package-dir"] == {"mlm.configs": "configs"}

"""Every package and configuration group of the source tree is in the list the wheel is built from."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_wheel_lists_every_package_and_the_configurations():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {".".join(init.parent.relative_to(ROOT).parts) for init in (ROOT / "mlm").rglob("__init__.py")}
    assert set(setuptools["packages"]) == found | {"mlm.configs"}
    assert setuptools["package-dir"] == {"mlm.configs": "configs"}


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config):
    hidden = pytestconfig.getini("norecursedirs")
    folders = {
        part for file in (ROOT / "tests").rglob("test_*.py") for part in file.relative_to(ROOT).parts[:-1]
    }
    assert {"dist", "e2e", "unit"} <= folders
    assert not [f for f in folders if any(fnmatch(f, pattern) for pattern in hidden)]


def test_every_file_that_is_no_python_goes_into_the_wheel():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    shipped = {
        path
        for package, patterns in data.items()
        if package != "mlm.configs"
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    found = {p for p in (ROOT / "mlm").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert found <= shipped

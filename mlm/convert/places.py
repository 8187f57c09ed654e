"""Where conversions write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlm.errors import Problem


def new_folder_problems(out: Path) -> Iterator[Problem]:
    """Why a folder cannot be made there; an empty one is as good as none."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        yield Problem(str(out), "exists, and nothing is ever overwritten", "name a directory that is new")
    elif not out.parent.is_dir():
        yield Problem(str(out), f"lies in no directory: {out.parent} is none", "make it first")

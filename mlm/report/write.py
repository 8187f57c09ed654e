"""The report's folder: where it is, when it may be replaced, and that it is never half written."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from mlm.errors import ConfigError, Problem
from mlm.report.page import GENERATOR

PAGE = "index.html"


def problems(out: Path) -> list[Problem]:
    """Why no report can be written there; an earlier report of ours may be replaced, nothing else."""
    where = f"out={out}"
    remedy = "use another out=DIR"
    try:
        if out.is_dir():
            strangers = _strangers(out)
            if strangers:
                shown = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
                return [Problem(where, f"holds what no report left there ({shown})", remedy)]
        elif out.exists() or out.is_symlink():
            return [Problem(where, "is no directory", remedy)]
        parent = next(folder for folder in out.absolute().parents if folder.exists())
    except OSError as error:
        return [Problem(where, f"cannot be used ({error.strerror})", remedy)]
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        return [Problem(where, f"cannot be made in {parent}", "use out=DIR where you may write")]
    return []


def write(out: Path, files: Mapping[str, str | bytes]) -> None:
    """Put the files into out, all of them or none, in place of an earlier report.

    Raises ConfigError when the folder cannot be written.
    """
    aside = out.with_name(f".{out.name}.{os.getpid()}.new")
    before = out.with_name(f".{out.name}.{os.getpid()}.old")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        for name, content in files.items():
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            (aside / name).write_bytes(data)
        if out.exists():
            out.rename(before)
        aside.rename(out)
    except OSError as error:
        if before.exists() and not out.exists():
            before.rename(out)
        problem = Problem(f"out={out}", f"cannot be written ({error.strerror})", "use another out=DIR")
        raise ConfigError(problem) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(before, ignore_errors=True)


def _strangers(out: Path) -> list[str]:
    """Names in the folder that no report of ours has put there; [] for an empty folder."""
    names = sorted(path.name for path in out.iterdir())
    try:
        page = (out / PAGE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return names
    if f'<meta name="generator" content="{GENERATOR} ' not in page:
        return names
    # The page lists what lies beside it.
    ours = {PAGE, *re.findall(r'<a href="([^"/]+)">', page)}
    return [name for name in names if name not in ours]

"""Where configuration files are: the shipped configs/ and the directories a user adds with --config-dir."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlm.errors import ConfigError, Problem

PRIMARY = "train"
"""Name of mlm-train's file that lists the groups and their defaults; every command has one."""

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Option:
    """One YAML file of a group: its name, first comment line and path."""

    name: str
    description: str
    path: Path


@dataclass(frozen=True)
class Group:
    """One group of configs/: what `name=option` may select; default is None when it may be left out."""

    name: str
    default: str | None
    options: tuple[Option, ...]

    def option(self, name: str) -> Option | None:
        return next((option for option in self.options if option.name == name), None)


def shipped_config_dir() -> Path:
    """The configs/ that came with mlm: inside a wheel, else beside the package in its source tree.

    Raises ConfigError when there is neither.
    """
    candidates = [_PACKAGE / "configs", _PACKAGE.parent / "configs"]
    for candidate in candidates:
        if (candidate / f"{PRIMARY}.yaml").is_file():
            return candidate
    where = " and ".join(str(c) for c in candidates)
    raise ConfigError(Problem("configs/", f"is neither of {where}", "install mlm again"))


def search_dirs(config_dirs: Sequence[Path | str] = ()) -> list[Path]:
    """Absolute directories in the order they are searched: the user's first, the shipped one last.

    Raises ConfigError naming every directory that does not exist.
    """
    dirs = [Path(d).expanduser().absolute() for d in config_dirs]
    remedy = "name a directory that holds groups, as model/mine.yaml"
    problems = [Problem(f"--config-dir {d}", "is not a directory", remedy) for d in dirs if not d.is_dir()]
    if problems:
        raise ConfigError(problems)
    return [*dirs, shipped_config_dir()]


def find_groups(dirs: Sequence[Path], primary: str = PRIMARY) -> dict[str, Group]:
    """The groups of the primary file's defaults list, with every option found in dirs (first one wins)."""
    import yaml

    file = next(path for d in dirs if (path := d / f"{primary}.yaml").is_file())
    try:
        entries = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("defaults", [])
    except (yaml.YAMLError, AttributeError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable(file, error)) from None
    groups = {}
    for entry in entries:
        if isinstance(entry, dict):
            for name, default in entry.items():
                groups[name] = Group(name, default, find_options(name, dirs))
    return groups


def unreadable(path: Path, error: BaseException) -> Problem:
    """The problem of a file that is no YAML mapping; error's first line and position tell why."""
    mark = getattr(error, "problem_mark", None)
    line = f" at line {mark.line + 1}" if mark is not None else ""
    why = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return Problem(f"{path}", f"cannot be read as YAML{line} ({why})", "correct the file")


def description(path: Path) -> str:
    """What the file is, in one line: its first comment that is not Hydra's `@package`."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.lstrip("# ").strip()
        if not line.startswith("#"):
            break
        if text and not text.startswith("@package"):
            return text
    return ""


def find_options(group: str, dirs: Sequence[Path]) -> tuple[Option, ...]:
    """The YAML files of a group's folder in dirs by name; of two with one name the first directory's."""
    found: dict[str, Option] = {}
    for base in (d / group for d in dirs):
        for path in sorted(base.rglob("*.yaml")):
            name = path.relative_to(base).with_suffix("").as_posix()
            found.setdefault(name, Option(name, description(path), path))
    return tuple(sorted(found.values(), key=lambda option: option.name))

"""The command line of commands that take key=value overrides and a handful of flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlm.errors import Problem


@dataclass
class Arguments:
    """What was typed, in order."""

    overrides: list[str] = field(default_factory=list)
    config_dirs: list[Path] = field(default_factory=list)
    help: bool = False
    version: bool = False
    multirun: bool = False
    """-m: the overrides make several runs."""
    problems: list[Problem] = field(default_factory=list)
    """Every flag that does not exist."""

    def refuse_sweeps(self, can_sweep: bool) -> None:
        """Take out what only several runs can have and say so. can_sweep: whether the command has -m."""
        if self.multirun:
            wrong = "is no option of this command"
            self.problems.append(Problem("-m", wrong, "give one value of each key"))
        for word in [w for w in self.overrides if can_sweep and w.partition("=")[0] == "study"]:
            self.overrides.remove(word)
            self.problems.append(Problem(word, "is a study of several runs", f"add -m: mlm-train -m {word}"))


def parse(argv: Sequence[str]) -> Arguments:
    """Split argv into overrides and flags."""
    arguments = Arguments()
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            arguments.help = True
        elif word == "--version":
            arguments.version = True
        elif word in ("-m", "--multirun"):
            arguments.multirun = True
        elif name == "--config-dir":
            folder = value if equals else next(words, "")
            if not folder:
                arguments.problems.append(
                    Problem("--config-dir", "needs a directory", "use --config-dir DIR")
                )
            else:
                arguments.config_dirs.append(Path(folder))
        elif word.startswith("-"):
            arguments.problems.append(Problem(word, "is no option of this command", _instead(name, value)))
        else:
            arguments.overrides.append(word)
    return arguments


def _instead(name: str, value: str) -> str:
    key = name.lstrip("-").replace("-", "_")
    if not key.isidentifier():
        return "use key=value, or --help"
    return f"settings are written {key}={value or 'VALUE'}, without dashes (--help lists them)"

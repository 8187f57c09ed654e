"""mlm-report: read finished runs, compute, draw, write one folder. Starts nothing and imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mlm
from mlm.cli.errors import exit_code_of
from mlm.errors import Problem

NAME = "mlm-report"
_KEYS = ("out", "baseline", "warmup_steps")


@dataclass
class Arguments:
    """What was typed."""

    runs: list[Path] = field(default_factory=list)
    out: str | None = None
    baseline: str | None = None
    warmup_steps: int | None = None
    problems: list[Problem] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 (a report was written), 2 (refused)."""
    words = list(sys.argv[1:] if argv is None else argv)

    def answer() -> int:
        if "-h" in words or "--help" in words:
            from mlm.cli import help as help_text

            print(help_text.REPORT, end="", flush=True)
            return 0
        if "--version" in words:
            print(f"{NAME} {mlm.__version__}")
            return 0
        return _report(parse(words))

    return exit_code_of(answer, lambda: NAME, outcome="nothing was written")


def parse(words: Sequence[str]) -> Arguments:
    """Split the words into runs and keys; a folder whose name has a = in it is a folder."""
    given = Arguments()
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in _KEYS and not Path(word).exists():
            _set(given, key, value)
        elif word.startswith("-"):
            given.problems.append(Problem(word, "is no option of this command", "--help lists what there is"))
        elif equals and key.isidentifier() and not Path(word).exists():
            given.problems.append(Problem(word, "is no key and no folder", f"keys are {', '.join(_KEYS)}"))
        else:
            given.runs.append(Path(word).expanduser())
    if not given.runs:
        remedy = f"{NAME} RUN ... names the directories of runs or studies"
        given.problems.append(Problem("RUNS", "is empty: nothing to report on", remedy))
    return given


def _set(given: Arguments, key: str, value: str) -> None:
    if not value:
        given.problems.append(Problem(f"{key}=", "has no value", f"write {key}=VALUE or leave it out"))
    elif key == "out":
        given.out = value
    elif key == "baseline":
        given.baseline = value
    elif value.isascii() and value.isdigit():
        given.warmup_steps = int(value)
    else:
        wrong = "is not a whole number from 0 on"
        given.problems.append(Problem(f"{key}={value}", wrong, f"write {key}=5 for five steps"))


def _report(given: Arguments) -> int:
    from mlm.report.command import report

    return report(
        given.runs,
        out=given.out,
        baseline=given.baseline,
        warmup_steps=given.warmup_steps,
        flaws=given.problems,
    )


if __name__ == "__main__":
    sys.exit(main())

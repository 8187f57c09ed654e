"""How a command says that it will not start: every problem in one table, no traceback, exit code 2."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from mlm.errors import Problem

EXIT_REFUSED = 2
NOTHING_STARTED = "nothing was started"


def refuse(command: str, problems: Sequence[Problem], outcome: str = NOTHING_STARTED) -> int:
    """Print the problems to stderr and return the exit code. outcome: what the refusal spared."""
    width = shutil.get_terminal_size((120, 0)).columns
    print(format_problems(command, problems, width, outcome), end="", file=sys.stderr, flush=True)
    return EXIT_REFUSED


def format_problems(
    command: str, problems: Sequence[Problem], width: int, outcome: str = NOTHING_STARTED
) -> str:
    """The table of problems: aligned columns where they fit into width, else every remedy on its own line."""
    unique = list(dict.fromkeys(problems))
    count = f"{len(unique)} problem{'s' if len(unique) != 1 else ''}"
    where = max(len(problem.where) for problem in unique)
    wrong = max(len(problem.wrong) for problem in unique)
    remedy = max(len(problem.remedy) for problem in unique)
    lines = [f"{command}: {count}, {outcome}"]
    if where + wrong + remedy + 6 <= width:
        lines += [f"  {p.where:{where}}  {p.wrong:{wrong}}  {p.remedy}" for p in unique]
    else:
        lines += [f"  {p.where}  {p.wrong}\n    -> {p.remedy}" for p in unique]
    return "\n".join(lines) + "\n"

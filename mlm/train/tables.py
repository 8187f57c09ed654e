"""Tables for the log: the same text in a terminal and in train.log."""

from __future__ import annotations

import io
import shutil

from rich.console import Console
from rich.table import Table


def plain_table(first: str, *others: str) -> Table:
    """A table without lines, its columns of numbers to the right of the first."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="right")
    return table


def rendered(table: Table) -> str:
    """The table as text, without the terminal's codes."""
    out = io.StringIO()
    columns = min(118, shutil.get_terminal_size((118, 24)).columns)
    Console(file=out, width=columns, no_color=True).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())

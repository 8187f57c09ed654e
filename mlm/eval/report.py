"""Results for people and for programs: the tables on the console, and the rows of eval.json."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from mlm.eval.run import DataFileRead, Row, TaskResult
from mlm.eval.windows import PAPER_WINDOW

PAPER: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "wikitext103": ("ppl/word", {"355M": "19.31", "2.5B": "12.76", "8.3B": "10.81"}),
    "lambada": ("accuracy", {"355M": "45.18 %", "2.5B": "61.73 %", "8.3B": "66.51 %"}),
}
"""What the paper reports for its own models (section 5.2, Table 3): task -> (column, figure by model)."""

_WIDTH = 118
_COLUMNS = {
    "accuracy": ("accuracy", "acc"),
    "last token": ("last_token_accuracy",),
    "ppl last word": ("ppl_last_word", "perplexity"),
    "ppl/word": ("ppl_word", "word_perplexity"),
    "ppl/token": ("ppl_token",),
    "bits/byte": ("bits_per_byte",),
    "tokens": ("n_tokens",),
    "words": ("n_words",),
    "items": ("n_items",),
    "window": ("window",),
    "stride": ("stride",),
}
"""Heading -> names of one figure in different variants; a row shows the first that it has."""
_PERCENT = ("accuracy", "last token")


def table(result: TaskResult) -> str:
    """One task's rows as text; what is not the paper's protocol or not the whole file says so."""
    out = io.StringIO()
    columns = min(_WIDTH, max(80, shutil.get_terminal_size((_WIDTH, 24)).columns))
    console = Console(file=out, width=columns, no_color=True, highlight=False, markup=False)
    limited = "" if result.limit is None else f", limited to {result.limit:,}"
    console.print(f"{result.task}{limited}")
    shown = [
        head for head, names in _COLUMNS.items() if any(set(names) & set(r.figures) for r in result.rows)
    ]
    rows = Table(box=None, padding=(0, 2, 0, 0))
    rows.add_column("variant", no_wrap=True)
    for head in shown:
        rows.add_column(head, justify="right", no_wrap=True)
    for row in result.rows:
        rows.add_row(row.variant, *(_cell(row, head) for head in shown))
    if result.task in PAPER:
        what, figures = PAPER[result.task]
        for size, value in figures.items():
            rows.add_row(f"paper, {size}", *(value if head == what else "" for head in shown))
    console.print(rows)
    for line in [*_notes(result), *_counts(result), *map(_file, result.files)]:
        console.print(f"  {line}", soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def lines(result: TaskResult) -> list[str]:
    """One line a row, with its headline figure: for a training run's console."""
    limited = "" if result.limit is None else f", limited to {result.limit:,}"
    return [f"{result.task}{limited}  {row.variant}: {row.headline} {_headline(row)}" for row in result.rows]


def as_json(results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """The results as JSON values; a figure that is no finite number is null there."""
    return [_finite(asdict(result)) for result in results]


def metric_values(results: Sequence[TaskResult]) -> dict[str, Any]:
    """Every numeric figure as TASK/VARIANT/FIGURE, for metrics of a training run."""
    values: dict[str, Any] = {}
    for result in results:
        if result.limit is not None:
            values[f"{result.task}/limit"] = result.limit
        for row in result.rows:
            for name, value in row.figures.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    values[f"{result.task}/{row.variant}/{name}"] = _finite(value)
    return values


def _cell(row: Row, head: str) -> str:
    value = next((row.figures[name] for name in _COLUMNS[head] if name in row.figures), None)
    if value is None:
        return ""
    if head in _PERCENT:
        return f"{100 * value:.2f} %"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4f}" if value < 1e6 else f"{value:.3e}"


def _headline(row: Row) -> str:
    head = next((head for head, names in _COLUMNS.items() if row.headline in names), "")
    return _cell(row, head) if head else _plain(row.value)


def _notes(result: TaskResult) -> list[str]:
    if result.task not in PAPER:
        return []
    ours = next((row for row in result.rows if row.variant == "paper"), None)
    if ours is None or ours.is_paper_protocol:
        return ["variant paper: the paper's protocol"]
    reasons = [f"the model's context is {result.context:,}"] if result.context < PAPER_WINDOW else []
    reasons += [f"limited to {result.limit:,}"] if result.limit is not None else []
    return [
        f"variant paper: NOT the paper's protocol ({', '.join(reasons)}), not to be compared with its figures"
    ]


def _counts(result: TaskResult) -> list[str]:
    """What else went into the first row, in words that eval.json uses."""
    if not result.rows:
        return []
    shown = {name for names in _COLUMNS.values() for name in names}
    others = {
        name: value
        for name, value in result.rows[0].figures.items()
        if name not in shown and not name.startswith("file_") and isinstance(value, (int, float))
    }
    return [", ".join(f"{name} {_plain(value)}" for name, value in others.items())]


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.10g}"


def _file(file: DataFileRead) -> str:
    which = "the published file" if file.published else "not a published file"
    return f"{file.path}: {file.size:,} bytes, sha256 {file.sha256[:16]}, {which}"


def _finite(value: Any) -> Any:
    """Strict JSON has no inf and nan."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value

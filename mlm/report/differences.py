"""What tells runs apart: keys of their configurations and of their environments that do not agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlm.config.fields import flatten, plain
from mlm.report.points import Point
from mlm.report.run import Run

_NOT_COMPARED = ("run_dir", "sweep_dir")
"""Different in every run, and of no meaning."""


@dataclass(frozen=True)
class Difference:
    """One key, with its value for each of the things compared, in their order; "" where it has none."""

    key: str
    values: Sequence[str]


def config_differences(points: Sequence[Point]) -> tuple[list[Point], list[Difference]]:
    """The points that could be read, and the keys in which their configurations differ."""
    readable = [point for point in points if point.readable]
    values = [
        {key: _typed(value) for key, value in flatten(point.readable[0].config).items()} for point in readable
    ]
    found = [d for d in _differing(values) if d.key not in _NOT_COMPARED]
    return readable, found


def environment_differences(runs: Sequence[Run]) -> tuple[list[tuple[str, str]], list[Difference]]:
    """(what all runs have in common, what differs): versions, code, machine, environment variables."""
    facts = [environment_facts(run) for run in runs]
    differing = _differing(facts)
    keys = {difference.key for difference in differing}
    common = [(key, value) for key, value in (facts[0] if facts else {}).items() if key not in keys]
    return common, differing


def environment_facts(run: Run) -> dict[str, str]:
    """What bears on a run's speed and results, by names a person reads."""
    about = run.environment
    machine, source = _object(about.get("machine")), _object(about.get("source"))
    accelerators = [a for a in machine.get("accelerators") or [] if isinstance(a, dict)]
    names = sorted({str(a.get("name")) for a in accelerators})
    state = {True: "edited since the commit", False: "as committed"}.get(bool(source.get("modified")))
    facts = {
        "device": run.device,
        "precision": run.config.precision.name,
        "host": about.get("host"),
        "accelerators": f"{len(accelerators)} x {' / '.join(names)}" if names else "none",
        "cores": machine.get("cores"),
        "platform": about.get("platform"),
        "commit": source.get("commit"),
        "checkout": state if source else None,
        "CUDA of torch": machine.get("torch_cuda"),
        **{f"version of {name}": value for name, value in _object(about.get("versions")).items()},
        **_object(about.get("environment")),
    }
    return {key: str(value) for key, value in facts.items() if value not in (None, "")}


def grouped(values: Sequence[str], names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each value with the names of those that have it, in order of appearance."""
    found: dict[str, list[str]] = {}
    for value, name in zip(values, names, strict=True):
        found.setdefault(value, []).append(name)
    return list(found.items())


def _differing(tables: Sequence[Mapping[str, str]]) -> list[Difference]:
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = [Difference(key, [table.get(key, "") for table in tables]) for key in keys]
    return [row for row in rows if len(set(row.values)) > 1]


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else plain(value) or "null"


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

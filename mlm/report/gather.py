"""From the folders that were named to groups of points: studies, runs, and folders that hold them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mlm.config.names import alternatives, nearest
from mlm.errors import ConfigError, DataError, Problem
from mlm.report.points import Attempt, Group, Point, published_table
from mlm.report.run import looks_like_run, read_run
from mlm.studies import record
from mlm.studies.record import RunState, Study, read_study

WARMUP_STEPS = 5
"""Left out of the figures of runs that belong to no study, which states its own."""
_DEPTH = 4
"""How many folders below a named one are looked into: runs/STUDY/POINT/REPEAT."""


_NOT_RUN = {record.PENDING: "not run yet", record.SUBMITTED: "waits in the cluster's queue"}


def gather(folders: Sequence[Path], *, baseline: str | None, warmup_steps: int | None) -> list[Group]:
    """The groups of everything that was named: each study by itself, then all other runs together.

    baseline: label of a point or a run's directory, in place of the study's own; warmup_steps: in place of
    the study's own or WARMUP_STEPS. Runs that cannot be read are in their group with the reason.
    Raises ConfigError with every problem: a folder that is none or holds no run, a baseline that is no point.
    """
    problems: list[Problem] = []
    studies: dict[Path, Study] = {}
    damaged_studies: list[Attempt] = []
    runs: dict[Path, Path] = {}
    for folder in folders:
        found = list(_search(folder)) if folder.is_dir() else []
        if not found:
            problems.append(_nothing(folder))
        for path in found:
            if not (path / record.FILE).is_file():
                runs.setdefault(path.resolve(), path)
                continue
            try:
                studies.setdefault(path.resolve(), read_study(path))
            except ConfigError as error:
                reason = f"{record.FILE} {error.problems[0].wrong}"
                damaged_studies.append(Attempt(path, "damaged", reason, (), None, False))
    # A run that was named beside its study is in the study already.
    inside = {study.run_dir(r).resolve() for study in studies.values() for p in study.points for r in p.runs}
    groups = [_of_study(study, warmup_steps) for study in studies.values()]
    loose = [path for resolved, path in runs.items() if resolved not in inside]
    if loose or damaged_studies:
        groups.append(_of_runs(loose, damaged_studies, warmup_steps))
    if baseline is not None and not problems:
        groups, problem = _with_baseline(groups, baseline)
        problems += problem
    if problems:
        raise ConfigError(problems)
    return groups


def _search(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Studies and runs in the folder, in the order of their names; nothing inside of one is looked at."""
    if (folder / record.FILE).is_file() or looks_like_run(folder):
        yield folder
        return
    if depth == 0:
        return
    try:
        inner = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    except OSError:
        return
    for path in sorted(inner, key=_natural):
        yield from _search(path, depth - 1)


def _natural(path: Path) -> list[tuple[str, int]]:
    """Sorts tp=2 before tp=16."""
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", path.name)]


def _nothing(folder: Path) -> Problem:
    if folder.is_file():
        return Problem(str(folder), "is a file", f"name the run's directory, {folder.parent}")
    if not folder.exists():
        siblings = [p.name for p in folder.parent.iterdir()] if folder.parent.is_dir() else []
        close = nearest(folder.name, siblings, limit=1)
        remedy = (
            f"did you mean {folder.parent / close[0]}?" if close else "name a run's or a study's directory"
        )
        return Problem(str(folder), "does not exist", remedy)
    return Problem(str(folder), "holds no run", "name a folder that mlm-train wrote, or one that holds such")


def _of_study(study: Study, warmup_steps: int | None) -> Group:
    warmup = study.warmup_steps if warmup_steps is None else warmup_steps
    points = [
        Point(
            label=printable(point.label),
            attempts=[_of_state(study, run, warmup) for run in point.runs],
            series=None if point.series is None else printable(point.series),
            places=_places(study, point.overrides),
            published_key=point.published_key,
            warmup_steps=warmup,
        )
        for point in study.points
    ]
    return Group(
        title=printable(study.title or study.name),
        name=_safe(study.name),
        points=points,
        baseline=_baseline(study, points),
        scaling=study.scaling,
        published=published_table(study.published),
        compare=study.compare,
        panels=study.panels,
        curves=study.curves,
        command=[str(word) for word in study.command],
        is_study=True,
    )


def _baseline(study: Study, points: Sequence[Point]) -> Point | None:
    if study.compare is not None:
        return None
    if study.baseline is None:
        return _default_baseline(points)
    return next((point for point in points if point.label == printable(study.baseline)), None)


def _places(study: Study, overrides: Sequence[str]) -> dict[str, str]:
    """The values of the keys that a figure of losses is arranged by."""
    keys = {*study.panels, study.curves}
    split = (override.partition("=") for override in overrides)
    return {key: printable(value) for key, _, value in split if key in keys}


def _of_state(study: Study, state: RunState, warmup_steps: int) -> Attempt:
    folder = study.run_dir(state)
    message = None if state.message is None else printable(state.message)
    if state.status in (record.PENDING, record.REFUSED, record.SUBMITTED):
        reason = message or {"pending": "not run yet", "submitted": "waits in the cluster's queue"}.get(
            state.status
        )
        return Attempt(folder, state.status, reason or "no reason is recorded", state.command, None, False)
    attempt = _read(folder, warmup_steps, state.command)
    if state.status == record.FINISHED:
        return attempt
    if study.is_result(state) and attempt.run is not None:
        return replace(attempt, status=state.status, reason=message or "its loss is no number any more")
    reasons = [message, *(attempt.run.flaws if attempt.run else [])]
    reason = "; ".join(r for r in reasons if r) or attempt.reason
    return Attempt(folder, state.status, reason, attempt.command, attempt.run, counts=False)


def _read(folder: Path, warmup_steps: int, command: Sequence[str] = ()) -> Attempt:
    try:
        run = read_run(folder)
    except DataError as error:
        return Attempt(folder, "damaged", printable(str(error)), command, None, counts=False)
    reasons = list(run.flaws)
    if not run.windows(warmup_steps):
        reasons.append(f"no figures: no timing window begins after the {warmup_steps} warm-up steps")
    reason = printable("; ".join(reasons)) or None
    status = "finished" if run.is_finished else "unfinished"
    return Attempt(folder, status, reason, command or run.command, run, counts=True)


def _of_runs(folders: Sequence[Path], damaged: Sequence[Attempt], warmup_steps: int | None) -> Group:
    """Runs named one by one: each is a point of its own, called by as much of its path as tells it apart."""
    warmup = WARMUP_STEPS if warmup_steps is None else warmup_steps
    attempts = [*(_read(folder, warmup) for folder in folders), *damaged]
    labels = _labels([attempt.folder for attempt in attempts])
    points = [
        Point(label, [attempt], warmup_steps=warmup) for label, attempt in zip(labels, attempts, strict=True)
    ]
    title = points[0].label if len(points) == 1 else f"Comparison of {len(points)} runs"
    return Group(title, "runs", points, _default_baseline(points) if len(points) > 1 else None)


def _default_baseline(points: Sequence[Point]) -> Point | None:
    """The first of the smallest that was measured; None when there is nothing to compare with it."""
    measured = [(point.work.processes, n) for n, point in enumerate(points) if point.work and point.timing]
    return points[min(measured)[1]] if len(measured) > 1 else None


def _with_baseline(groups: list[Group], baseline: str) -> tuple[list[Group], list[Problem]]:
    """The groups with the baseline replaced where one of their points is meant."""
    as_path = Path(baseline).expanduser().resolve()
    changed, is_somewhere = [], False
    for group in groups:
        meant = next((p for p in group.points if p.label == baseline or as_path in _folders(p)), None)
        is_somewhere = is_somewhere or meant is not None
        changed.append(group if meant is None else replace(group, baseline=meant))
    if is_somewhere:
        return changed, []
    labels = [point.label for group in groups for point in group.points]
    close = nearest(baseline, labels, limit=3) or labels[:3]
    wrong = "is neither a point's label nor a run's directory"
    return groups, [Problem(f"baseline={baseline}", wrong, f"use {alternatives(close)}")]


def _folders(point: Point) -> set[Path]:
    return {attempt.folder.resolve() for attempt in point.attempts}


def _labels(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ from each other."""
    parts = [folder.resolve().parts for folder in folders]
    length = 1
    while length < max(map(len, parts), default=1) and len({p[-length:] for p in parts}) < len(parts):
        length += 1
    return [printable(os.sep.join(p[-length:])) for p in parts]


def printable(text: str) -> str:
    """The text on one line, without control characters and lone surrogates: fit for a page and a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(str(text).split()))


def _safe(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name).strip("._") or "study"

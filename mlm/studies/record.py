"""study.json: which runs make up a study and what became of each; mlm-train -m writes it, reports read it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mlm.errors import ConfigError, DivergedError, Problem
from mlm.failures import Failure, read_failures
from mlm.files import write_whole
from mlm.studies.identity import is_finished

FILE = "study.json"
FORMAT = 1

FINISHED = "finished"
FAILED = "failed"
REFUSED = "refused"
UNFINISHED = "unfinished"
PENDING = "pending"
SUBMITTED = "submitted"
DIVERGED = "diverged"
STATUSES = (FINISHED, DIVERGED, FAILED, REFUSED, UNFINISHED, PENDING, SUBMITTED)
"""finished: has its summary; diverged: its loss is no number any more, by its own arithmetic (DivergedError);
failed: a worker failed otherwise; refused: never started; unfinished: running, stopped or killed; pending:
not tried yet; submitted: a cluster has it in its queue."""


@dataclass(kw_only=True)
class RunState:
    """One repeat of a point: the newest directory that was tried for it."""

    dir: str
    """Relative to the study's folder."""
    hash: str
    """config_hash of the composed configuration (mlm.studies.identity)."""
    asked: dict[str, Any] = field(default_factory=dict)
    """What that configuration left to the launcher, by dotted key."""
    status: str = PENDING
    """One of STATUSES."""
    exit_code: int | None = None
    """Of the command; None while it has none."""
    message: str | None = None
    """The first cause of a failure or refusal, in a sentence."""
    command: list[str] = field(default_factory=list)
    """The words that repeat this run alone."""


@dataclass(kw_only=True)
class Point:
    """One configuration of a study, run once per repeat."""

    label: str
    """Readable and safe as a directory's name, which it is: model=gpt2_1b,tp=1."""
    series: str | None = None
    """Name of the curve it lies on, when the study has several."""
    published_key: int | None = None
    """Its place in the published figure."""
    overrides: list[str]
    """Everything it is composed from, the directory aside."""
    runs: list[RunState] = field(default_factory=list)
    """In the order of the repeats."""


@dataclass(kw_only=True)
class Study:
    """A study or a plain sweep with all its runs."""

    folder: Path
    """Where study.json lies; directories of runs are relative to it."""
    name: str
    title: str
    command: list[str]
    """What was typed, for the record."""
    scaling: str | None = None
    """weak: work grows with the processes; strong: it does not; None: neither is meant."""
    baseline: str | None = None
    """Label of the point that efficiencies refer to."""
    published: str | None = None
    """Name of the published figure to compare with (mlm.plan.published)."""
    warmup_steps: int = 0
    """Steps at the start of each run that no figure counts."""
    compare: str | None = None
    """What of the runs is compared in place of their speed (mlm.studies.definition.COMPARED)."""
    panels: list[str] = field(default_factory=list)
    """Keys of the columns and of the rows of the figure of losses."""
    curves: str | None = None
    """Key of its colours."""
    repeats: int = 1
    points: list[Point] = field(default_factory=list)

    def point(self, label: str) -> Point | None:
        return next((point for point in self.points if point.label == label), None)

    def run_dir(self, run: RunState) -> Path:
        """Absolute when folder is."""
        return self.folder / run.dir

    def is_seen_to(self, run: RunState) -> bool:
        """Whether the same command leaves the run as it is; to a study of losses, divergence is an answer."""
        return run.status in (FINISHED, SUBMITTED) or self.is_result(run)

    def is_result(self, run: RunState) -> bool:
        """Whether the run has told what it was started for."""
        return run.status == FINISHED or (run.status == DIVERGED and self.compare is not None)


def write_study(study: Study) -> None:
    """Replace study.json as a whole, so that a reader at any moment finds it complete."""
    content = {"format": FORMAT, **asdict(study)}
    del content["folder"]
    write_whole(study.folder / FILE, json.dumps(content, indent=2) + "\n")


def read_study(folder: Path | str) -> Study:
    """The study in that folder, every run's status compared with what its directory holds by now.

    A run that a cluster has finished since, or that ended after its launcher was killed, counts as finished,
    a submitted one whose ranks left failures as failed; one whose summary or configuration is no longer the
    recorded one as unfinished.
    Raises ConfigError when there is no study.json or it is not one of ours.
    """
    folder = Path(folder)
    path = folder / FILE
    remedy = "name a folder that mlm-train -m wrote"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read ({error.strerror})", remedy)) from None
    except ValueError as error:
        raise ConfigError(Problem(str(path), f"is not JSON ({error})", remedy)) from None
    written = content.get("format") if isinstance(content, dict) else None
    if written != FORMAT:
        wrong = f"has format {written}, and this version of mlm reads {FORMAT}"
        raise ConfigError(Problem(str(path), wrong, remedy))
    try:
        points = [
            Point(
                **{**_known(Point, point), "runs": [RunState(**_known(RunState, r)) for r in point["runs"]]}
            )
            for point in content["points"]
        ]
        study = Study(folder=folder, **{**_known(Study, content), "points": points})
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(Problem(str(path), f"is damaged ({error})", remedy)) from None
    for run in (run for point in study.points for run in point.runs):
        _refresh(study, run)
    return study


def failed(cause: Failure) -> tuple[str, str]:
    """The status of a run that ended with this failure, and the failure in a sentence."""
    message = next(iter(cause.message.strip().splitlines()), "")
    if cause.type == DivergedError.__name__:
        return DIVERGED, message
    return FAILED, f"rank {cause.rank}: {cause.type}: {message}".rstrip(": ")


def _refresh(study: Study, run: RunState) -> None:
    if run.status in (PENDING, REFUSED):
        return
    there = is_finished(study.run_dir(run), run.hash, run.asked)
    if there and run.status in (UNFINISHED, SUBMITTED):
        run.status, run.exit_code, run.message = FINISHED, 0, None
    elif run.status == SUBMITTED and (failures := read_failures(study.run_dir(run))):
        run.exit_code = 1
        run.status, run.message = failed(failures[0])
    elif (not there and run.status == FINISHED) or (
        run.status == DIVERGED and not (study.run_dir(run) / "config.yaml").is_file()
    ):
        run.status, run.message = UNFINISHED, f"{run.dir} no longer holds the run it held"


def _known(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Without keys that a later version may have added."""
    names = {f.name for f in fields(kind)}
    return {key: value for key, value in content.items() if key in names}

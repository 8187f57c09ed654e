"""Become one worker of a job that torchrun or srun started: agree with the others, then work.

Every process has composed the configuration for itself. Rank 0's is the one that is run; the others
compare theirs with it, and one process that objects ends all of them before anything is written.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

import mlm
from mlm.config.fields import flatten
from mlm.errors import ConfigError, LaunchError, MlmError, Problem
from mlm.launch.meeting import PEERS_TIMEOUT_S, POLL_S, Meeting
from mlm.launch.record import source_state
from mlm.launch.refusal import EXIT_REFUSED, refuse
from mlm.launch.slurm.environment import find_task, rendezvous_variables
from mlm.launch.step import Step
from mlm.launch.worker import leave

PREPARE_TIMEOUT_S = 24 * 3600.0
"""Seconds rank 0 may take over the data; when it dies, its step ends the others, or its store is lost."""
VISIBLE_TIMEOUT_S = 30.0
"""Seconds until what rank 0 wrote must be visible on another machine of a shared file system."""


def join(
    step: Step,
    config: Any,
    problems: Sequence[Problem],
    prepare: Callable[[], Path],
    environment: Mapping[str, str],
    *,
    command: str,
    worker: str,
) -> int:
    """Agree with the other processes of the step, then run this one's worker; returns the exit code.

    problems: what this process found wrong. prepare: called on rank 0 alone, once all agree; returns the
    path of the resolved configuration, which every process must be able to read. command: whose messages
    these are; worker: the module whose main(path) is run. A problem of any process is printed once and all
    return 2; a failure of the worker is the worker's to report.
    """
    _set_environment(step, config, environment)
    meeting = Meeting(step, environment)
    statement = _statement(config, problems)
    if step.rank == 0:
        path = _lead(meeting, statement, problems, prepare, command)
    else:
        path = _follow(meeting, statement)
    if path is None:
        return EXIT_REFUSED
    # The meeting stays alive meanwhile: under srun rank 0's store also serves the process groups.
    code: int = importlib.import_module(worker).main(str(path))
    leave(code)
    return code


def refuse_together(
    step: Step, problems: Sequence[Problem], environment: Mapping[str, str], command: str
) -> int:
    """End all processes of the step over problems of composition, printed once; returns 2."""
    _set_rendezvous(step, environment)
    meeting = Meeting(step, environment)
    statement = {"problems": [asdict(problem) for problem in problems], "host": socket.gethostname()}
    if step.rank == 0:
        _lead(meeting, statement, problems, None, command)
    else:
        _follow(meeting, statement)
    return EXIT_REFUSED


def _lead(
    meeting: Meeting,
    statement: dict[str, Any],
    problems: Sequence[Problem],
    prepare: Callable[[], Path] | None,
    command: str,
) -> Path | None:
    """Rank 0: say what is to be run, hear objections, prepare, say where it lies. None: all end."""
    others = meeting.step.world_size - 1
    if problems:
        # Printed before it is told: the first process that exits makes its launcher end this one.
        refuse(command, problems)
    meeting.tell("lead", statement)
    if problems or prepare is None:
        _part(meeting, others)
        return None
    if not meeting.wait_for_count("agreed", others, PEERS_TIMEOUT_S, unless="objection"):
        _stop(meeting, others, meeting.hear("objection", PEERS_TIMEOUT_S)["message"], command)
        return None
    try:
        path = prepare()
    except MlmError as error:
        if isinstance(error, ConfigError):
            refuse(command, error.problems)
        else:
            print(f"{command}: {error}", file=sys.stderr, flush=True)
        _stop(meeting, others, None, command)
        return None
    except BaseException:
        meeting.tell("go", {"stop": True})
        raise
    meeting.tell("go", {"path": str(path), "sha256": _sha256(path)})
    if not meeting.wait_for_count("ready", others, 2 * VISIBLE_TIMEOUT_S, unless="objection"):
        _stop(meeting, others, meeting.hear("objection", PEERS_TIMEOUT_S)["message"], command)
        return None
    meeting.tell("start", {})
    return path


def _follow(meeting: Meeting, statement: dict[str, Any]) -> Path | None:
    """Every other rank: compare, wait, find rank 0's files. None: all end."""
    lead = meeting.hear("lead", PEERS_TIMEOUT_S)
    if lead["problems"]:
        _leave(meeting)
        return None
    objection = _objection(meeting.step, statement, lead)
    if objection is not None:
        meeting.tell("objection", {"message": objection})
        _leave(meeting, wait_for="go")
        return None
    meeting.count("agreed")
    go = meeting.hear("go", PREPARE_TIMEOUT_S)
    if "stop" in go:
        _leave(meeting)
        return None
    path = Path(go["path"])
    if not _becomes_visible(path, go["sha256"]):
        message = (
            f"rank {meeting.step.rank} on {socket.gethostname()} does not see {path} as rank 0 wrote it: "
            "it has to be on a file system that all machines share"
        )
        meeting.tell("objection", {"message": message})
        _leave(meeting, wait_for="start")
        return None
    meeting.count("ready")
    if "stop" in meeting.hear("start", PEERS_TIMEOUT_S):
        _leave(meeting)
        return None
    return path


def _stop(meeting: Meeting, others: int, message: str | None, command: str) -> None:
    if message is not None:
        print(f"{command}: {message}", file=sys.stderr, flush=True)
    meeting.tell("go", {"stop": True})
    meeting.tell("start", {"stop": True})
    _part(meeting, others)


def _leave(meeting: Meeting, wait_for: str | None = None) -> None:
    if wait_for is not None:
        meeting.hear(wait_for, PEERS_TIMEOUT_S)
    meeting.count("left")


def _part(meeting: Meeting, others: int) -> None:
    """Rank 0 leaves last, for it may host the store the others still read from."""
    try:
        meeting.wait_for_count("left", others, VISIBLE_TIMEOUT_S)
    except LaunchError:
        return  # whoever has not come by now finds the store gone and ends as well


def _statement(config: Any, problems: Sequence[Problem]) -> dict[str, Any]:
    values = {key: value.name if isinstance(value, Enum) else value for key, value in flatten(config).items()}
    source = source_state()
    return {
        "version": f"{mlm.__version__}+{source['commit'][:12]}" if source else mlm.__version__,
        "values": values,
        "hash": hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest(),
        "problems": [asdict(problem) for problem in problems],
        "host": socket.gethostname(),
    }


def _objection(step: Step, own: dict[str, Any], lead: dict[str, Any]) -> str | None:
    """Why this process cannot go along with rank 0, naming both sides; None when it can."""
    me, first = f"rank {step.rank} on {own['host']}", f"rank 0 on {lead['host']}"
    if own["problems"]:
        said = "; ".join(str(Problem(**problem)) for problem in own["problems"])
        return f"{me} cannot run this, unlike {first}: {said}"
    if own["version"] != lead["version"]:
        return f"{me} runs mlm {own['version']}, {first} {lead['version']}: install one version everywhere"
    if own["hash"] != lead["hash"]:
        mine, theirs = own["values"], lead["values"]
        keys = [key for key in {**theirs, **mine} if mine.get(key) != theirs.get(key)]
        shown = ", ".join(f"{key}={mine.get(key)} against {theirs.get(key)}" for key in keys[:5])
        more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
        hashes = f"configuration {own['hash'][:12]} against {lead['hash'][:12]}"
        return f"{me} composed something else than {first} ({hashes}): {shown}{more}: use one command line"
    return None


def _becomes_visible(path: Path, sha256: str) -> bool:
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    while True:
        try:
            if _sha256(path) == sha256:
                return True
        except OSError:
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _set_environment(step: Step, config: Any, environment: Mapping[str, str]) -> None:
    """What a worker of our own launcher would find there, as far as it is not too late for it."""
    _set_rendezvous(step, environment)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if config.tp > 1:
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")


def _set_rendezvous(step: Step, environment: Mapping[str, str]) -> None:
    """Under srun, tell torch what torchrun would have told it; an address the user chose is kept."""
    task = find_task(environment) if step.starter == "srun" else None
    if task is not None:
        variables = rendezvous_variables(task)
        chosen = {name: environment[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in environment}
        os.environ.update(variables | chosen)

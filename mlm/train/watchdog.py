"""A thread that sees when a rank gets nowhere, and explains a hang: which collective, and who is missing.

Nothing is sent or written while training goes on. A rank that has not moved for a while writes down where it
is, in RUN_DIR/heartbeats; ranks that wait in a collective read there who has not come. The collective itself
is ended by the process group's own time limit; where that fails, by this thread.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType

import torch.distributed as dist

from mlm.errors import HangError
from mlm.failures import record_failure
from mlm.files import write_whole
from mlm.parallel.waiting import InCollective, position
from mlm.train.log import logger

HEARTBEATS = "heartbeats"
WARN_SHARE, WARN_AT_MOST_S = 0.25, 300.0
"""Of launch.timeout_s that passes without a move until there is a warning, and its limit in seconds."""
OVERTIME_S = 15.0
"""Seconds beyond launch.timeout_s until this thread ends a collective that its process group has not."""
POLL_S = 1.0

_TIMED_OUT = ("timed out waiting", "watchdog got stuck", "wait timeout", "timeout in collective")
"""How gloo and NCCL put it."""
_OF_PYTHON = (f"{os.sep}threading.py", f"{os.sep}contextlib.py", f"{os.sep}torch{os.sep}")

_phase = ["the start"]


def watch(phase: str) -> None:
    """Say what this process is doing from here on, in words that follow `in`: step 12."""
    _phase[0] = phase
    position.moves += 1


@dataclass(frozen=True)
class Report:
    """Where a rank is that has not moved for `still_s` seconds.

    place: the innermost line of ours that it executes. entered: axis name -> how many of its collectives the
    rank has entered. collective, axis, members: what it is in, over which axis, with which ranks.
    """

    rank: int
    phase: str
    still_s: float
    place: str
    entered: dict[str, int]
    collective: str | None
    axis: str
    members: list[int]


class Watchdog:
    """Context around a rank's work. A collective that took too long leaves it as a HangError that says so."""

    def __init__(
        self,
        run_dir: Path,
        timeout_s: float,
        *,
        nccl: bool = False,
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[int], None] = os._exit,
    ):
        """timeout_s: of a collective. nccl: whether it is used. end: ends the process with a code."""
        self.run_dir, self.timeout_s = run_dir, timeout_s
        self.rank, self.world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.warn_s = min(WARN_SHARE * timeout_s, WARN_AT_MOST_S)
        self._clock, self._end, self._nccl = clock, end, nccl
        self._watched = threading.get_ident()
        self._moves, self._since, self._warned = -1, clock(), False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def _own(self) -> Path:
        return self.run_dir / HEARTBEATS / f"rank_{self.rank}.json"

    def __enter__(self) -> Watchdog:
        if self.world_size > 1:
            if self._nccl:
                _have_nccl_tell(self.run_dir / HEARTBEATS)
            self._own.unlink(missing_ok=True)
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if error is None:
            self._own.unlink(missing_ok=True)
        elif self.world_size > 1 and is_timeout(error):
            raise HangError(self.explanation()) from error

    def look(self) -> None:
        """What the thread does every POLL_S seconds."""
        if position.moves != self._moves:
            self._moves, self._since = position.moves, self._clock()
            if self._warned:
                self._warned = False
                self._own.unlink(missing_ok=True)
            return
        still_s = self._clock() - self._since
        if still_s < self.warn_s:
            return
        self._write(still_s)
        waits_for = position.collective
        if waits_for is None:
            return  # a slow rank, or the one that is missing: those who wait for it will say so
        if not self._warned:
            self._warned = True
            # A moment for the others to write as well.
            self._over.wait(2 * self._poll_s)
            if position.moves == self._moves and self._speaks(waits_for):
                logger.warning(f"warning: {self.explanation()}")
        if still_s > self.timeout_s + OVERTIME_S:
            record_failure(self.run_dir, self.rank, HangError(self.explanation()))
            self._end(1)

    def explanation(self) -> str:
        """Which collective this rank is in, for how long, and who of its ranks has not come."""
        mine = self._report(self._clock() - self._since)
        limit = f"launch.timeout_s={self.timeout_s:g}"
        if mine.collective is None:
            return (
                f"nothing was heard from the other ranks for {mine.still_s:.0f} s in {mine.phase} ({limit})"
            )
        members = f"{mine.axis} (ranks {_listed(mine.members)})"
        what = f"{mine.collective} number {mine.entered[mine.axis]:,} over {members} in {mine.phase}"
        waited = f"{what} has taken {mine.still_s:.0f} s ({limit})"
        missing = self._missing(mine, {self.rank})
        if not missing:
            return f"{waited} though all its ranks have come: look at the network between them"
        return f"{waited} and waits for {missing}"

    @property
    def _poll_s(self) -> float:
        return min(POLL_S, self.warn_s / 4)

    def _run(self) -> None:
        while not self._over.wait(self._poll_s):
            self.look()

    def _speaks(self, waits_for: InCollective) -> bool:
        """Whether this is the lowest of the ranks that wait for the same: one warning is enough."""
        for rank in _members(waits_for, self.world_size):
            if rank == self.rank:
                return True
            report = self._read(rank)
            if report is not None and report.collective is not None:
                return False
        return True

    def _missing(self, waiting: Report, seen: set[int]) -> str:
        """Who of the ranks of what `waiting` is in has not come, and whom these wait for in turn.

        seen: ranks that are named already, against going round in circles.
        """
        sentences = []
        for rank in waiting.members:
            if rank in seen:
                continue
            report = self._read(rank)
            if report is None:
                sentences.append(f"rank {rank}, which does not say where it is: stopped, dead or cut off")
            elif report.entered.get(waiting.axis, 0) < waiting.entered[waiting.axis]:
                sentence = f"rank {rank}, for {report.still_s:.0f} s at {report.place} in {report.phase}"
                further = self._missing(report, {*seen, rank}) if report.collective else ""
                sentences.append(f"{sentence}, where it waits for {further}" if further else sentence)
        return " and ".join(sentences)

    def _report(self, still_s: float) -> Report:
        collective = position.collective
        return Report(
            self.rank,
            _phase[0],
            still_s,
            _place(sys._current_frames().get(self._watched)),
            dict(position.entered),
            None if collective is None else collective.name,
            "" if collective is None else collective.axis.name,
            [] if collective is None else _members(collective, self.world_size),
        )

    def _write(self, still_s: float) -> None:
        try:
            self._own.parent.mkdir(exist_ok=True)
            write_whole(self._own, json.dumps(asdict(self._report(still_s)), indent=1))
        except OSError:
            return  # a full disk must not be what ends a run that may yet go on

    def _read(self, rank: int) -> Report | None:
        try:
            return Report(**json.loads(self._own.with_name(f"rank_{rank}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None


def is_timeout(error: BaseException) -> bool:
    """Whether a collective failed because it took too long, as opposed to a peer that has gone."""
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _TIMED_OUT)


def _members(collective: InCollective, world_size: int) -> list[int]:
    group = collective.axis.group
    return dist.get_process_group_ranks(group) if group is not None else list(range(world_size))


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, ... {ranks[-1]}" if len(ranks) > 8 else shown


def _place(frame: FrameType | None) -> str:
    """`hang (model.py:12)`: the innermost line that is neither Python's nor torch's."""
    if frame is None:
        return "its end"
    frames = list(reversed(traceback.extract_stack(frame)))
    own = next((f for f in frames if not any(part in f.filename for part in _OF_PYTHON)), frames[0])
    return f"{own.name} ({Path(own.filename).name}:{own.lineno})"


def _have_nccl_tell(folder: Path) -> None:
    """Ask NCCL's process groups for their flight recorder's traces when they give a collective up."""
    folder.mkdir(exist_ok=True)
    for name, value in _nccl_variables(folder):
        os.environ.setdefault(name, value)


def _nccl_variables(folder: Path) -> Iterator[tuple[str, str]]:
    yield "TORCH_FR_BUFFER_SIZE", "2000"
    yield "TORCH_NCCL_DUMP_ON_TIMEOUT", "1"
    yield "TORCH_FR_DUMP_TEMP_FILE", str(folder / "nccl_trace_rank_")

"""Workers on this machine until the run has an end: how that is told, and when they are started again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm.checkpoint.origin import read_origin
from mlm.failures import Failure, read_failures
from mlm.launch.command import Command, Say
from mlm.launch.local import Outcome, run_workers, worker_arguments
from mlm.launch.preflight import Launch
from mlm.launch.stopped import EXIT_SAVED, STOPPED, Stopped, read_stopped
from mlm.launch.verdict import is_consequence

EXIT_WORKER_FAILED = 1
HANG = "HangError"
"""The one failure in words of ours that another attempt may not meet again."""


@dataclass(frozen=True)
class Attempts:
    """A job whose directory is prepared.

    typed: the whole command line. environment: what workers get on top of this process's. report: prints what
    went wrong from the records in a folder and the exit statuses of the first ranks to end.
    """

    command: Command[Any]
    config: Any
    launch: Launch
    typed: Sequence[str]
    environment: Mapping[str, str]
    say: Say
    tell: Callable[[str], None]
    report: Callable[[Path, Mapping[int, int]], None]

    def run(self, config_path: Path) -> int:
        """Run the workers to an end and return the exit code: 0, 1, 75, or 128 and a signal's number.

        Raises ConfigError or LaunchError when an attempt cannot be started.
        """
        folder, settings = config_path.parent, self.config.launch
        restarts = 0
        while True:
            (folder / STOPPED).unlink(missing_ok=True)
            outcome = run_workers(
                worker_arguments(self.command.worker, config_path),
                self.launch.processes,
                self.environment,
                failure_grace_s=settings.failure_grace_s,
                save_grace_s=settings.save_grace_s,
                # What is only scratch has nothing to save, and ends by itself.
                tell=(lambda line: None) if self.command.is_scratch else self.tell,
            )
            failures = read_failures(folder)
            if outcome.succeeded:
                return self._ended(folder, outcome)
            own_failure = next((f for f in failures if not is_consequence(f)), None)
            if outcome.killed_by is not None or (outcome.heard is not None and own_failure is None):
                return self._killed(folder, outcome)
            self.report(folder, outcome.first_exits)
            if outcome.heard is not None or not self._may_restart(failures, restarts):
                return EXIT_WORKER_FAILED
            restarts += 1
            self._restart(folder, restarts)

    def _ended(self, folder: Path, outcome: Outcome) -> int:
        origin = read_origin(folder)
        stopped = None if origin is None else read_stopped(folder, origin.attempt)
        if stopped is None:
            if outcome.heard is not None:
                self.say(f"{outcome.heard.name} came when the last step was done; the run is finished")
            return 0
        self.say(stopped_text(stopped))
        self.say(f"  go on with: {shlex.join(self._going_on(folder))}")
        return EXIT_SAVED

    def _killed(self, folder: Path, outcome: Outcome) -> int:
        number = outcome.killed_by or outcome.heard
        assert number is not None, "somebody was killed over a signal"
        grace_s = self.config.launch.save_grace_s
        late = (
            f"; the workers had not ended within launch.save_grace_s={grace_s:g}" if outcome.overdue else ""
        )
        left = "" if self.command.is_scratch else f"; what was written is in {folder}"
        self.say(f"stopped by {number.name}{late}{left}")
        return 128 + number

    def _may_restart(self, failures: Sequence[Failure], restarts: int) -> bool:
        allowed = self.config.launch.max_restarts
        if self.command.restart is None or not allowed:
            return False
        if any(f.user_error and f.type != HANG for f in failures):
            # What the data, the settings or the disk have against it they would have again.
            self.say("not started again: that would end the same way")
            return False
        if restarts == allowed:
            self.say(f"not started again: launch.max_restarts={allowed} are used up")
            return False
        return True

    def _restart(self, folder: Path, number: int) -> None:
        assert self.command.restart is not None, "only what can be restarted is"
        checkpoint = self.command.restart(folder, self.say)
        place = "from its beginning" if checkpoint is None else f"from {checkpoint}"
        self.say(f"started again {place} (restart {number} of {self.config.launch.max_restarts})")

    def _going_on(self, folder: Path) -> list[str]:
        decided = (f"{self.command.folder_key}=", "resume=", "init_from=")
        words = [word for word in self.typed if not word.startswith(decided)]
        return [*words, f"{self.command.folder_key}={folder}", "resume=auto"]


def stopped_text(stopped: Stopped) -> str:
    """What became of a run that was stopped, in a sentence."""
    if stopped.checkpoint is None:
        return f"stopped by {stopped.reason} before the first step; there was nothing to save"
    return f"stopped by {stopped.reason} after step {stopped.step:,}, which is saved in {stopped.checkpoint}"

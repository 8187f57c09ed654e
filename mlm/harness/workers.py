"""The workers as lm_eval's process sees them: started, asked, and gone when it goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

from mlm.config.store import save_config
from mlm.errors import LaunchError
from mlm.eval.requests import Scores, Segment
from mlm.failures import LAUNCHER_PID
from mlm.harness import messages
from mlm.harness.messages import Answer, Drawing, Generate, Hello, Progress, Prompt, Request, Score
from mlm.harness.settings import FAILURE_GRACE_S, Settings

POLL_S = 0.2
"""Seconds between two looks at whether the workers are still there."""
END_GRACE_S = 5.0
"""Seconds that workers who are not needed any more may take to leave."""

Report = Callable[[int, int], None]


class Workers:
    """tp x dp processes, each with its part of the model, on this machine.

    They end with close(), or with this process, however it ends. The failure of one is a LaunchError, here
    and in every later request, that has its traceback.
    """

    def __init__(self, settings: Settings):
        """Returns when all of them have loaded the model. Raises LaunchError when one could not."""
        self._tp = settings.config.tp
        self._failed: str | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="mlm_harness_"))
        self._by_rank: list[Connection] = []
        processes = settings.launch.processes
        try:
            server = messages.listen(self._folder, processes)
        except LaunchError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        save_config(replace(settings.config, out=str(self._folder)), self._folder / messages.CONFIG)
        self._starter = subprocess.Popen(
            [sys.executable, "-m", "mlm.harness.starter", str(self._folder), str(processes)],
            env=os.environ | {LAUNCHER_PID: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            # Ctrl-C is for this process to answer.
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, os.getpid(), self._starter, self._by_rank, self._folder)
        try:
            with server:
                self._by_rank += self._welcome(server, processes)
        except BaseException:
            self._end()
            raise

    def score(self, segments: Sequence[Segment], report: Report | None = None) -> Scores:
        """Scores of the segments in their order. report(done, total): called now and then, with tokens."""
        scores = self._ask(Score(segments), report)[0]
        assert isinstance(scores, Scores), "rank 0 answers with scores"
        return scores

    def generate(
        self, prompts: Sequence[Prompt], drawing: Drawing, seed: int, report: Report | None = None
    ) -> list[str]:
        """What the model goes on with, by prompt. report: as in score, with prompts."""
        texts: dict[int, str] = {}
        for answer in self._ask(Generate(prompts, drawing, seed), report)[:: self._tp]:
            assert isinstance(answer, dict), "the first rank of each replica answers with texts"
            texts |= answer
        return [texts[prompt.number] for prompt in prompts]

    def close(self) -> None:
        """End the workers; does nothing when they have ended."""
        self._end()

    def _welcome(self, server: socket.socket, processes: int) -> list[Connection]:
        """The connections of all workers, by rank, once each has said that it is ready."""
        connections: dict[int, Connection] = {}
        while len(connections) < processes:
            if not wait([server], POLL_S):
                if self._starter.poll() is not None:
                    self._fail()
                continue
            connection = messages.accept(server)
            try:
                hello = connection.recv()
            except (EOFError, ConnectionResetError):
                self._fail()
            assert isinstance(hello, Hello), "a worker begins with its rank"
            connections[hello.rank] = connection
        return [connections[rank] for rank in range(processes)]

    def _ask(self, request: Request, report: Report | None) -> list[object]:
        """Every rank's answer."""
        if self._failed is not None:
            raise LaunchError(self._failed)
        assert self._end.alive, "the workers have been closed"
        try:
            for connection in self._by_rank:
                connection.send(request)
            answers: dict[int, object] = {}
            while len(answers) < len(self._by_rank):
                open_ones = [c for rank, c in enumerate(self._by_rank) if rank not in answers]
                ready = wait(open_ones, POLL_S)
                if not ready and self._starter.poll() is not None:
                    self._fail()
                for connection in open_ones:
                    if connection in ready:
                        self._hear(connection, answers, report)
            return [answers[rank] for rank in range(len(self._by_rank))]
        except (EOFError, ConnectionError):
            self._fail()
        except LaunchError:
            raise
        except BaseException:
            # They are still at a request that nobody waits for, and would take the answer for the next one's.
            self._failed = "the last request was broken off, and the model's processes with it: start anew"
            self._starter.terminate()
            self._end()
            raise

    def _hear(self, connection: Connection, answers: dict[int, object], report: Report | None) -> None:
        said = connection.recv()
        if isinstance(said, Answer):
            answers[self._by_rank.index(connection)] = said.value
        elif isinstance(said, Progress) and report is not None:
            report(said.done, said.total)

    def _fail(self) -> NoReturn:
        """Raise what made a worker end, once its launcher has found out."""
        self._end.detach()
        # What is left of them ends with the first, at once or after the launcher's grace.
        _stop(self._starter, self._by_rank, grace_s=FAILURE_GRACE_S + END_GRACE_S)
        try:
            self._failed = (self._folder / messages.REPORT).read_text(encoding="utf-8").strip()
        except OSError:
            self._failed = "the model's processes were ended from outside: start anew"
        if not (self._folder / "errors").is_dir():
            shutil.rmtree(self._folder, ignore_errors=True)
        raise LaunchError(self._failed)


def _end(owner: int, starter: subprocess.Popen[bytes], connections: list[Connection], folder: Path) -> None:
    """owner: the process whose workers they are; a fork of it leaves them alone."""
    if os.getpid() == owner:
        _stop(starter, connections, grace_s=END_GRACE_S)
        shutil.rmtree(folder, ignore_errors=True)


def _stop(starter: subprocess.Popen[bytes], connections: list[Connection], *, grace_s: float) -> None:
    """Close the connections, at which idle workers leave; the others are ended when grace_s is over."""
    for connection in connections:
        connection.close()
    for ask in (None, starter.terminate, starter.kill):
        if ask is not None:
            ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            starter.wait(grace_s)
            return

"""Worker processes, and their answers in the order of the questions."""

from __future__ import annotations

import contextlib
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from mlm.corpus.preparing.worker import send
from mlm.errors import DataError, MlmError

# Questions out at once, per worker: enough that none waits for the slowest one before it.
AHEAD = 4
# How far a worker's memory may grow before it is replaced: libraries keep every word they met.
RETIRE_BYTES = 512 << 20

Question = TypeVar("Question")


class Pool:
    """Workers that all do the same; a thread here speaks with each.

    A worker whose memory has grown is replaced. Leaving the `with` block ends all of them.
    """

    def __init__(self, workers: int, recipe: Any):
        self._recipe = recipe
        self._questions: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closed = False
        self._room = threading.Semaphore(AHEAD * workers)
        self.replaced = 0
        self._ready: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._speak, args=(number,), daemon=True) for number in range(workers)
        ]

    def __enter__(self) -> Pool:
        for thread in self._threads:
            thread.start()
        try:
            for _ in self._threads:
                error = self._ready.get()
                if error is not None:
                    raise error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every worker, at once."""
        self._closed = True
        for _ in self._threads:
            self._questions.put(None)
            self._room.release()
        for process in list(self._processes.values()):
            process.kill()
        for thread in self._threads:
            thread.join(timeout=10)

    def map(self, questions: Iterable[Question]) -> Iterator[tuple[Question, Any]]:
        """Each question with its answer, in order; an exception where a worker raised one.

        Questions are taken as room allows, by a thread of their own: reading goes on while workers work.
        """
        asked: queue.SimpleQueue[Question | BaseException | None] = queue.SimpleQueue()

        def ask() -> None:
            try:
                for number, question in enumerate(questions):
                    self._room.acquire()
                    if self._closed:
                        return
                    asked.put(question)
                    self._questions.put((number, question))
                asked.put(None)
            except BaseException as error:  # told in its turn, after what was read before it
                asked.put(error)

        threading.Thread(target=ask, daemon=True).start()
        waiting: dict[int, Any] = {}
        number = 0
        while (question := asked.get()) is not None:
            if isinstance(question, BaseException):
                raise question
            while number not in waiting:
                at, answer = self._answers.get()
                waiting[at] = answer
            answer = waiting.pop(number)
            if isinstance(answer, BaseException):
                raise answer
            yield question, answer
            self._room.release()
            number += 1

    def _speak(self, number: int) -> None:
        try:
            process = self._start(number)
        except BaseException as error:
            self._ready.put(error)
            return
        self._ready.put(None)
        while (item := self._questions.get()) is not None and not self._closed:
            at, question = item
            try:
                answer, retire = self._ask(process, question)
                if retire:
                    self._stop(process)
                    process = self._start(number)
                    self.replaced += 1
            except BaseException as error:
                answer = error
            self._answers.put((at, answer))
        self._stop(process)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlm.corpus.preparing.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._processes[number] = process
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, (self._recipe, RETIRE_BYTES))
        answer = self._read(process)
        if isinstance(answer, BaseException):
            raise answer
        return process

    def _ask(self, process: subprocess.Popen[bytes], question: Any) -> tuple[Any, bool]:
        assert process.stdin is not None
        try:
            send(process.stdin, question)
        except BrokenPipeError:
            raise self._gone(process) from None
        answer: tuple[Any, bool] = self._read(process)
        return answer

    def _read(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        try:
            return pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise self._gone(process) from None

    def _gone(self, process: subprocess.Popen[bytes]) -> MlmError:
        code = process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        hint = ": it may have run out of memory; use fewer --workers" if code == -9 else ""
        return DataError(f"a worker {how}{hint}")

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        process.wait()

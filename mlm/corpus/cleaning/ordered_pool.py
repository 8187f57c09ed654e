"""Work shared out over processes and taken back in order; one worker is this process itself."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Generic, TypeVar

from mlm.data.bad_data import BadData

Context = TypeVar("Context")
Item = TypeVar("Item")
Result = TypeVar("Result")

_context: Any = None


class OrderedPool(Generic[Context]):
    """Calls function(context, item) in `workers` processes, each of which gets the context once.

    Results come in the order of the items, so that nothing depends on who was faster. Use it in `with`.
    """

    def __init__(self, workers: int, context: Context):
        self.context = context
        self.workers = workers
        self._executor: ProcessPoolExecutor | None = None
        if workers > 1:
            # Spawned: a forked process would inherit the locks of libraries that run threads of their own.
            self._executor = ProcessPoolExecutor(
                workers, get_context("spawn"), initializer=_begin, initargs=(os.getpid(), context)
            )
            with _ctrl_c_later():
                for _ in range(workers):
                    self._executor.submit(os.getpid)  # each starts a process

    def map(self, function: Callable[[Context, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results, in order. Raises BadData when a worker was killed."""
        if self._executor is None:
            for item in items:
                yield function(self.context, item)
            return
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(self._executor.submit(_call, function, item))
                if len(ahead) > 2 * self.workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BrokenProcessPool:
            wrong = "was killed, perhaps for want of memory"
            raise BadData("a worker process", wrong, "try again with fewer --workers") from None

    def __enter__(self) -> OrderedPool[Context]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Ctrl-C in here counts when it is over, and never reaches the processes started in here.

    A process that is interrupted while it starts, or whose parent is, dies with a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which they inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _begin(parent: int, context: Any) -> None:
    global _context
    # Ctrl-C reaches every process of the terminal; the parent decides, and the workers end with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    from mlm.launch.orphans import watch_parent

    watch_parent(parent)
    _context = context


def _call(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_context, item)

"""Start workers on this machine with torch's elastic agent, in this process, and see them all out."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm.errors import LaunchError
from mlm.failures import LAUNCHER_PID, STARTED
from mlm.launch import signals
from mlm.launch.signals import Signals

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

MONITOR_INTERVAL_S = 0.1
LEFTOVER_GRACE_S = 1.0
"""Seconds that processes which workers started may take to follow them."""

END_NOW = signal.SIGHUP
"""Ends a worker at once, with nothing saved; SIGTERM only asks for it, and a peer's death leaves no time."""
_AGENTS_OWN = signal.SIGQUIT
"""The one signal that is left to the elastic agent, which ends the workers over it."""

# glibc hands every large tensor back to the system and asks for it again in the next step; with these a
# training step on CPU takes 16 to 29 % less time. Values in bytes.
_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(8 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


@dataclass
class Outcome:
    """How the workers ended.

    first_exits: rank -> exit status (negative: signal) of those that had ended when the launcher first
    looked at a failure; later ones are its doing. heard: the first signal the launcher itself received, which
    asks the workers to save and end. killed_by: the one over which they were killed instead: a second one,
    or the first when they had not ended within the saving grace (overdue).
    """

    succeeded: bool = False
    first_exits: dict[int, int] = field(default_factory=dict)
    heard: signal.Signals | None = None
    killed_by: signal.Signals | None = None
    overdue: bool = False


def worker_environment(
    environment: Mapping[str, str], *, device: str, tp: int, threads: int, started_s: float
) -> dict[str, str]:
    """What workers get on top of this process's environment; what the user has set is left alone.

    Threads are the exception: the resolved configuration says how many, and it is the truth. started_s,
    the time of the command in seconds since the epoch, lets the first rank say how long starting took.
    """
    ours = {"PYTHONUNBUFFERED": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if platform.system() == "Linux" and platform.libc_ver()[0] == "glibc":
        ours.update(_MALLOC)
    if device == "cuda" and tp > 1:
        # One hardware queue keeps the order of issue: an all-reduce starts before the product behind it.
        ours["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    ours = {name: value for name, value in ours.items() if name not in environment}
    ours |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return ours | {LAUNCHER_PID: str(os.getpid()), STARTED: repr(started_s)}


def run_workers(
    arguments: list[str],
    processes: int,
    environment: Mapping[str, str],
    *,
    failure_grace_s: float,
    save_grace_s: float,
    tell: Callable[[str], None],
) -> Outcome:
    """Run `python ARGUMENTS` as ranks 0..processes-1 of one job and return when none of them is left.

    After the first failure the others have failure_grace_s seconds until they are killed. A signal to this
    process is passed on, and they have save_grace_s seconds to end; a second one kills them at once. tell:
    says a line to the user, and may be called by a signal's handler. The rendezvous port is one the system
    finds free. Raises LaunchError when no worker could be started.
    """
    with _environment(environment), tempfile.TemporaryDirectory(prefix="mlm_") as scratch:
        outcome, workers = Outcome(), _Workers(save_grace_s, tell)
        workers.heard.listen()
        _silence_elastic()
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.rendezvous import RendezvousError

        try:
            agent = _make_agent(arguments, processes, failure_grace_s, workers, scratch)
            outcome.succeeded = not agent.run().is_failed()
            # Its store would otherwise be closed by the interpreter's end, in no particular order.
            agent.get_worker_group().spec.rdzv_handler.shutdown()
        except SignalException as error:
            outcome.killed_by = signal.Signals(error.sigval)
        except (OSError, RendezvousError) as error:
            raise LaunchError(f"workers could not be started: {error}") from error
        finally:
            signals.ignore()
            workers.end()
        outcome.first_exits, outcome.overdue = workers.first_exits, workers.overdue
        outcome.heard = workers.heard.first
        outcome.killed_by = workers.heard.second or (outcome.heard if workers.overdue else outcome.killed_by)
        return outcome


class _Workers:
    """The processes of this machine: asked to stop, killed when they must be, none left behind.

    ranks: pid -> global rank. first_exits: see Outcome. heard: what this process was asked for.
    """

    def __init__(self, save_grace_s: float, tell: Callable[[str], None]):
        self.ranks: dict[int, int] = {}
        self.first_exits: dict[int, int] = {}
        self.overdue = False
        self.heard = Signals(on_first=self._ask, on_second=self._kill)
        self._save_grace_s, self._tell = save_grace_s, tell
        self._started: list[subprocess.Popen[Any]] = []

    def have_started(self, started: dict[int, subprocess.Popen[Any]]) -> None:
        """started: global rank -> process. What was heard before is passed on now."""
        self.ranks.update({process.pid: rank for rank, process in started.items()})
        self._started = list(started.values())
        if self.heard.first is not None:
            self._pass_on(self.heard.first)

    def look_at_the_clock(self) -> None:
        """Kill the workers when the time to save is over."""
        late = time.monotonic() - self.heard.first_at > self._save_grace_s
        if self.heard.first is not None and late and not self.overdue:
            self.overdue = True
            self._kill(self.heard.first)

    def exits(self) -> dict[int, int]:
        """Rank -> exit status of those that have ended."""
        statuses = {self.ranks[process.pid]: process.poll() for process in self._started}
        return {rank: status for rank, status in statuses.items() if status is not None}

    def end(self) -> None:
        """Kill what is still in the workers' process groups (each worker leads its own)."""
        deadline = time.monotonic() + LEFTOVER_GRACE_S
        groups = set(self.ranks)
        while groups and time.monotonic() < deadline:
            groups = {group for group in groups if _kill_group(group, 0)}
            time.sleep(0.02 if groups else 0)
        for group in groups:
            _kill_group(group, signal.SIGKILL)

    def _ask(self, number: signal.Signals) -> None:
        self._tell(
            f"{number.name}: the workers save and end after this step, within {self._save_grace_s:g} s "
            "(a second signal ends them at once)"
        )
        self._pass_on(number)

    def _pass_on(self, number: signal.Signals) -> None:
        for process in self._started:
            # END_NOW would not be a request.
            process.send_signal(signal.SIGTERM if number == END_NOW else number)

    def _kill(self, number: signal.Signals) -> None:
        for group in self.ranks:
            _kill_group(group, signal.SIGKILL)


def _kill_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False when nobody is in it any more."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _make_agent(
    arguments: list[str], processes: int, grace_s: float, workers: _Workers, scratch: str
) -> LocalElasticAgent:
    """An elastic agent for one job on this machine, which tells workers of its processes.

    Built from the agent's own classes rather than through elastic_launch, for two reasons: that one
    waits 30 s for workers that ignore SIGTERM, and asks CUDA for devices in the launcher.
    """
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

    class Agent(LocalElasticAgent):
        def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
            # A worker that is still loading its interpreter must not die of a signal that it could answer.
            with signals.held_back():
                pids = super()._start_workers(worker_group)
                context: Any = self._pcontext
                started = {
                    worker.global_rank: context.subprocess_handlers[worker.local_rank].proc
                    for worker in worker_group.workers
                }
                workers.have_started(started)
            close = context.close

            def close_within_grace(death_sig: signal.Signals | None = None, timeout: float = grace_s) -> None:
                if not workers.first_exits:
                    workers.first_exits.update(workers.exits())
                close(END_NOW, min(timeout, grace_s))

            context.close = close_within_grace
            return pids

        def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
            workers.look_at_the_clock()
            return super()._monitor_workers(worker_group)

    spec = _worker_spec(WorkerSpec, arguments, processes)
    # The agent makes a folder for redirected output even when nothing is redirected.
    return Agent(spec=spec, logs_specs=DefaultLogsSpecs(log_dir=scratch))


def _worker_spec(spec_class: type[WorkerSpec], arguments: list[str], processes: int) -> WorkerSpec:
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    rendezvous = RendezvousParameters(
        backend="c10d",
        endpoint="localhost:0",
        run_id=str(uuid.uuid4()),
        min_nodes=1,
        max_nodes=1,
        local_addr="localhost",
    )
    return spec_class(
        role="mlm",
        local_world_size=processes,
        entrypoint=sys.executable,
        args=tuple(arguments),
        rdzv_handler=get_rendezvous_handler(rendezvous),
        max_restarts=0,
        monitor_interval=MONITOR_INTERVAL_S,
        local_addr="localhost",
    )


def _silence_elastic() -> None:
    """What the agent logs about signals and exit codes is said better, and once, by our own report."""
    logger = logging.getLogger("torch.distributed.elastic")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


@contextlib.contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    """The agent hands on this process's environment, so workers' variables are set here for the while."""
    before = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (*signals.STOP, _AGENTS_OWN)}
    os.environ.update(extra)
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = _AGENTS_OWN.name
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            with contextlib.suppress(ValueError):
                signal.signal(number, handler)


def worker_arguments(module: str, config_path: Path) -> list[str]:
    """Arguments of `python` that make it a worker of the run whose resolved configuration this is."""
    return ["-m", module, str(config_path)]

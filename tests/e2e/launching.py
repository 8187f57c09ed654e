"""Running the real commands: a tiny model, faults injected by rank, and a look at what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent
MLM_TRAIN = [str(BIN / "mlm-train")]
MLM_EVAL = [str(BIN / "mlm-eval")]
MLM_GENERATE = [str(BIN / "mlm-generate")]
TORCHRUN = [str(BIN / "torchrun")]

TINY = [
    "model=gpt2_tiny",
    "tp=2",
    "train.steps=4",
    "train.global_batch_size=4",
    "train.micro_batch_size=4",
    "train.log_interval=1",
    "train.final_eval=false",
    "train.save=false",
    "train.sample_tokens=0",
    "optim.warmup_steps=1",
]

# Every Python process imports sitecustomize; only workers have a RANK (or a place in a step of Slurm's) and
# an optimizer to break.
_FAULTS = """
import os, signal, sys, time

def break_step(number, fault):
    from mlm.optim.adamw import AdamW
    step, calls = AdamW.step, [0]
    def broken(self, *args):
        calls[0] += 1
        if calls[0] == number:
            optimizers[:] = [self]
            fault()
        return step(self, *args)
    AdamW.step = broken

optimizers = []

def poison():
    for group in optimizers[0].groups:
        if "layers.1.mlp.expand.weight" in group.parameters:
            group.parameters["layers.1.mlp.expand.weight"].data[0, 0] = float("nan")

def boom():
    raise ValueError("boom")

def hang():
    open(os.path.join(os.environ["FAULT_MARKS"], rank), "w").close()
    time.sleep(120)

def deaf_hang():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hang()

def user_error():
    from mlm.errors import TrainError
    raise TrainError("the loss is a letter: use numbers")

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "NONE"))
# `boom@seed=2` breaks only a run whose directory has seed=2 in its path.
fault, _, place = os.environ.get("FAULT_OF_RANK_" + rank, "").partition("@")
is_worker = "mlm.train.worker" in sys.orig_argv or "launch.mode=join" in sys.orig_argv
if fault and is_worker and place in " ".join(sys.orig_argv):
    break_step(3, globals()[fault])
"""


class Launches:
    """Starts commands in one folder, with one cache, and remembers every process they made."""

    def __init__(self, folder: Path, cache: Path):
        self.folder = folder
        self.marks = folder / "marks"
        self.scratch = folder / "scratch"
        self.marks.mkdir()
        self.scratch.mkdir()
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_FAULTS)
        left_out = ("SLURM_", "MLM_", "CUDA_")
        outer = {k: v for k, v in os.environ.items() if k == "SLURM_CONF" or not k.startswith(left_out)}
        self.environment = outer | {
            "PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "MLM_CACHE": str(cache),
            "FAULT_MARKS": str(self.marks),
            "TMPDIR": str(self.scratch),
            "COLUMNS": "200",
        }

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Launched:
        process = subprocess.Popen(
            list(command),
            cwd=self.folder,
            env=self.environment | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Launched(process)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, timeout_s: float = 90
    ) -> Launched:
        launched = self.start(command, environment)
        launched.finish(timeout_s)
        return launched

    def run_dirs(self) -> list[Path]:
        return sorted((self.folder / "runs").iterdir()) if (self.folder / "runs").exists() else []

    def wait_for_marks(self, number: int, timeout_s: float = 60) -> None:
        """Until that many ranks have reached their `hang`."""
        deadline = time.monotonic() + timeout_s
        while len(list(self.marks.iterdir())) < number:
            assert time.monotonic() < deadline, "the workers did not get to their third step"
            time.sleep(0.05)


class Launched:
    """A command that was started."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.began = time.monotonic()
        self.out = self.err = ""
        self.seconds = 0.0

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def finish(self, timeout_s: float = 90) -> int:
        try:
            self.out, self.err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            for child in self.descendants():
                child.kill()
            self.process.kill()
            self.out, self.err = self.process.communicate()
            raise AssertionError(f"still running after {timeout_s} s:\n{self.out}\n{self.err}") from None
        self.seconds = time.monotonic() - self.began
        return self.code

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @property
    def code(self) -> int:
        return self.process.returncode


def wait_until_gone(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those still alive after the time; a dead one that nobody has collected yet is not."""
    _, alive = psutil.wait_procs([p for p in processes if _is_alive(p)], timeout=0)
    deadline = time.monotonic() + timeout_s
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = [process for process in alive if _is_alive(process)]
    return alive


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def occupied_ports(*ports: int) -> Iterator[None]:
    """Ports somebody else listens on, as far as they are free now."""
    import socket

    sockets = []
    for port in ports:
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sockets.append(taken)
        try:
            taken.bind(("127.0.0.1", port))
            taken.listen()
        except OSError:
            continue  # then somebody does already
    try:
        yield
    finally:
        for taken in sockets:
            taken.close()

"""launch=slurm inside an allocation: srun starts the tasks, and how they ended is made out."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from mlm.errors import LaunchError
from mlm.failures import FAILURES_ARE_READ, read_failures
from mlm.launch.slurm import queue
from mlm.launch.slurm.plan import SlurmPlan

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ENDED = re.compile(
    r"srun: error: [^:\s]+: tasks? ([\d,-]+): "
    r"(Exited with exit code (?P<code>\d+)|"
    r"Killed|Out Of Memory|Terminated|Aborted|Segmentation fault|Bus error)"
)
_STATUS = {
    "Killed": -signal.SIGKILL,
    "Out Of Memory": -signal.SIGKILL,
    "Terminated": -signal.SIGTERM,
    "Aborted": -signal.SIGABRT,
    "Segmentation fault": -signal.SIGSEGV,
    "Bus error": -signal.SIGBUS,
}
_POLL_S = 0.2


def srun_options(plan: SlurmPlan) -> list[str]:
    """What srun is told in an allocation and in a job file alike."""
    options = [f"--nodes={plan.nodes}", f"--ntasks={plan.tasks}", f"--ntasks-per-node={plan.tasks_per_node}"]
    if plan.cores_per_task is not None:
        # Slurm 22.05 and later take it neither from the job nor from SLURM_CPUS_PER_TASK.
        options.append(f"--cpus-per-task={plan.cores_per_task}")
    # In blocks, so that a tp group lies on one node, whatever SLURM_DISTRIBUTION says.
    return [*options, "--distribution=block", "--kill-on-bad-exit=1"]


@dataclass
class StepOutcome:
    """How a step ended. code: srun's; signal: what this process received; said: srun's own lines."""

    code: int = 0
    signal: signal.Signals | None = None
    said: list[str] = field(default_factory=list)


def ended_tasks(lines: Sequence[str]) -> dict[int, int]:
    """Task -> exit status (negative: signal) of those that ended badly, in the order of srun's own lines.

    After the first, an end by SIGTERM is srun's own doing. Of a range of tasks only the first is named.
    """
    ends: dict[int, int] = {}
    for line in lines:
        found = _ENDED.search(line)
        if found:
            task, code = int(re.split(r"[,-]", found[1])[0]), found["code"]
            ends.setdefault(task, int(code) if code is not None else _STATUS[found[2]])
    return ends


def true_code(code: int, lines: Sequence[str], folder: Path) -> int:
    """The exit code of what ran, made out from srun's code, its lines and what the run directory holds.

    srun answers with the highest code of its tasks, that of those it has killed itself among them.
    """
    if code == 0:
        return 0
    if read_failures(folder):
        return 1
    status = next(iter(ended_tasks(lines).values()), None)
    if status is not None:
        return status if status > 0 else 128 - status
    # No task and no run: srun itself refused.
    return code if (folder / "config.yaml").exists() else 2


def run_step(
    plan: SlurmPlan, arguments: Sequence[str], environment: Mapping[str, str], grace_s: float
) -> StepOutcome:
    """Run `python ARGUMENTS` as the tasks of one step and return when it has ended.

    Output is passed through. A signal to this process goes to the tasks; those that have not ended grace_s
    seconds later, or at a second signal, are killed. Raises LaunchError when srun cannot be run.
    """
    assert plan.allocation is not None, "a step is part of an allocation"
    name = f"mlm-{uuid.uuid4().hex[:8]}"
    srun = shutil.which("srun", path=environment.get("PATH"))
    if srun is None:
        raise LaunchError("srun is not on the PATH")
    options = [*srun_options(plan), "--input=none", "--disable-status", f"--job-name={name}"]
    inherited = dict(environment)
    if plan.allocation.in_step:
        # The shell is a step itself (srun --pty bash) and would otherwise keep its cores and GPUs to itself.
        options.append("--overlap")
        # Nor are the cores that it is bound to a binding for the tasks.
        inherited = {name: v for name, v in inherited.items() if not name.startswith("SLURM_CPU_BIND")}
    outcome = StepOutcome()
    try:
        process = subprocess.Popen(
            [srun, *options, sys.executable, *arguments],
            env={**inherited, FAILURES_ARE_READ: "1"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C comes to this process alone, which passes it on.
            process_group=0,
        )
    except OSError as error:
        raise LaunchError(f"srun could not be started: {error}") from error
    assert process.stderr is not None
    pump = threading.Thread(target=_pass_on, args=(process.stderr, outcome.said), daemon=True)
    pump.start()
    _wait(process, outcome, _Step(plan.allocation.job_id, name, environment), grace_s)
    pump.join(timeout=grace_s)
    outcome.code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return outcome


def command_line(plan: SlurmPlan, arguments: Sequence[str]) -> str:
    """The step as it could be typed."""
    return shlex.join(["srun", *srun_options(plan), sys.executable, *arguments])


@dataclass
class _Step:
    job_id: str
    name: str
    environment: Mapping[str, str]

    def terminate(self) -> bool:
        """SIGTERM to every task. srun itself, on a SIGTERM, would kill them at once."""
        list_steps = ["squeue", "--steps", "--noheader", f"--jobs={self.job_id}", "--format=%i|%j"]
        try:
            listed = queue.ask(list_steps, self.environment).stdout.split()
            ours = [line.partition("|")[0] for line in listed if line.endswith(f"|{self.name}")]
            sent = [
                queue.ask(["scancel", "--signal=TERM", step], self.environment).returncode for step in ours
            ]
        except LaunchError:
            return False
        return bool(sent) and not any(sent)


def _wait(process: subprocess.Popen[bytes], outcome: StepOutcome, step: _Step, grace_s: float) -> None:
    received: list[signal.Signals] = []

    def hear(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))

    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    passed_on, deadline = 0, float("inf")
    try:
        while process.poll() is None:
            if len(received) > passed_on or time.monotonic() > deadline:
                first = not passed_on
                passed_on = len(received)
                deadline = time.monotonic() + grace_s
                outcome.signal = received[0]
                _pass_signal_on(process, step, received[0] if first else None)
            time.sleep(_POLL_S)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.kill()
            process.wait()


def _pass_signal_on(process: subprocess.Popen[bytes], step: _Step, number: signal.Signals | None) -> None:
    """To the tasks; None: end them at once, which is what srun makes of SIGTERM."""
    if number == signal.SIGINT:
        process.send_signal(signal.SIGINT)  # --disable-status: srun hands the first one on
    elif number is None or not step.terminate():
        process.terminate()


def _pass_on(stream: IO[bytes], said: list[str]) -> None:
    """Copy srun's standard error to ours as it comes, and keep what srun says of its tasks."""
    with stream:
        for line in stream:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            if line.startswith(b"srun: "):
                said.append(line.decode(errors="replace").rstrip())

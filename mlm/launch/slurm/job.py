"""launch=slurm outside an allocation: a job file that people can read, handed to sbatch."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlm.config.schema import LaunchConfig
from mlm.errors import ConfigError, LaunchError, Problem
from mlm.launch.command import Say
from mlm.launch.rundir import JOB_FILE, JOB_ID_FILE
from mlm.launch.slurm import queue
from mlm.launch.slurm.plan import SlurmPlan
from mlm.launch.slurm.step import StepOutcome, srun_options

LOG_PATTERN = "slurm-%j.log"
"""Name of a job's log in the run directory; %j is the job's number."""
VISIBLE_TIMEOUT_S = 5.0
"""Seconds until what a node wrote before its job ended must be visible here."""


@dataclass(frozen=True)
class Job:
    """What is submitted. arguments: of python, for every task; folder: the run directory."""

    name: str
    command: str
    plan: SlurmPlan
    launch: LaunchConfig
    arguments: Sequence[str]
    folder: Path
    layout: str
    """The processes in words, for the reader of the file."""
    cwd: Path
    python: str = sys.executable
    can_start_over: bool = False
    """Whether the run goes on when Slurm starts the job again, after a node's failure or a pre-emption."""


def job_text(job: Job) -> str:
    """The job file."""
    plan, launch = job.plan, job.launch
    directives = [
        f"--job-name={job.name}",
        f"--nodes={plan.nodes}",
        f"--ntasks-per-node={plan.tasks_per_node}",
    ]
    if plan.cores_per_task is not None:
        directives.append(f"--cpus-per-task={plan.cores_per_task}")
    if plan.device == "cuda":
        directives.append(f"--gpus-per-node={plan.tasks_per_node}")
    named = {"partition": launch.partition, "account": launch.account, "time": launch.time_limit}
    directives += [f"--{key}={value}" for key, value in named.items() if value is not None]
    # Without resume=auto a run directory is not written to twice: a job that starts over would be refused.
    directives += ["--requeue" if job.can_start_over else "--no-requeue", f"--chdir={job.cwd}"]
    # In a file's name % begins a pattern.
    directives.append(f"--output={str(job.folder).replace('%', '%%')}/{LOG_PATTERN}")
    directives += launch.sbatch_options
    lines = [
        "#!/bin/bash",
        f"# {job.layout}. Written by {job.command} launch=slurm.",
        *(f"#SBATCH {shlex.quote(directive)}" for directive in directives),
        "",
        "# The job that these files belong to: the run accepts a directory that holds nothing else.",
        f'echo "$SLURM_JOB_ID" > {shlex.quote(str(job.folder / JOB_ID_FILE))}',
        "",
        " \\\n    ".join(
            [
                shlex.join(["srun", *srun_options(plan)]),
                shlex.join([job.python, *job.arguments[:2]]),
                *(shlex.quote(word) for word in job.arguments[2:]),
            ]
        ),
    ]
    return "\n".join(lines) + "\n"


@dataclass
class Submitted:
    """A job in the queue. sbatch: the process that waits for it, with launch.wait."""

    job_id: str
    log: Path
    sbatch: subprocess.Popen[str]


def submit(job: Job, environment: Mapping[str, str], say: Say) -> Submitted:
    """Write the job file and hand it to sbatch, which with launch.wait goes on to wait for the job's end.

    The folder exists and is empty; it is left so when nothing was submitted.
    Raises ConfigError when sbatch refuses the job, LaunchError when it cannot be run.
    """
    path = job.folder / JOB_FILE
    path.write_text(job_text(job))
    waiting = ["--wait"] if job.launch.wait else []
    sbatch = shutil.which("sbatch", path=environment.get("PATH")) or "sbatch"
    with tempfile.TemporaryFile("w+") as complaints:
        try:
            process = subprocess.Popen(
                [sbatch, "--parsable", *waiting, str(path)],
                env=_undecided(environment, job.launch),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                # Ctrl-C comes to this process alone, which cancels the job.
                process_group=0,
            )
        except OSError as error:
            path.unlink()
            raise LaunchError(f"sbatch could not be started: {error}") from error
        assert process.stdout is not None
        # `ID`, or `ID;CLUSTER` where there are several.
        job_id = process.stdout.readline().partition(";")[0].strip()
        if not job_id.isdigit():
            process.communicate()
            path.unlink()
            complaints.seek(0)
            raise ConfigError(_refusal(complaints.read()))
    # The job writes it too, when it starts; until then it is known who waits.
    (job.folder / JOB_ID_FILE).write_text(f"{job_id}\n")
    submitted = Submitted(job_id, job.folder / LOG_PATTERN.replace("%j", job_id), process)
    nodes = f"{job.plan.nodes} node{'s' if job.plan.nodes > 1 else ''}"
    say(f"submitted job {job_id}: {nodes} of {job.plan.tasks_per_node} processes")
    say(f"  file    {path}")
    say(f"  log     {submitted.log}")
    say(f"  state   squeue --jobs={job_id}")
    say(f"  cancel  scancel {job_id}")
    return submitted


def see_out(submitted: Submitted, environment: Mapping[str, str]) -> StepOutcome:
    """Wait for the job's end. SIGINT and SIGTERM cancel it; it goes on when the terminal is closed."""
    received: list[signal.Signals] = []

    def cancel(number: int, frame: object) -> None:
        if received:
            submitted.sbatch.kill()  # a second one: not even the cancelling is waited for
            return
        received.append(signal.Signals(number))
        with contextlib.suppress(LaunchError):
            queue.ask(["scancel", submitted.job_id], environment)

    before = {number: signal.signal(number, cancel) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        submitted.sbatch.communicate()
        code = submitted.sbatch.returncode
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    lines = _log_lines(submitted.log) if _becomes_visible(submitted.log) else []
    return StepOutcome(code, received[0] if received else None, lines)


def _log_lines(log: Path) -> list[str]:
    """The lines of a job's log; none where there is no log."""
    try:
        return log.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _becomes_visible(path: Path) -> bool:
    """Whether a file exists that another machine may have written a moment ago."""
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        os.listdir(path.parent)  # makes a network file system look again
        time.sleep(0.2)
    return True


def why_cancelled(lines: Sequence[str]) -> str | None:
    """What Slurm wrote into a log when it ended the job, as for its time limit; None when it did not."""
    found = (re.search(r"\*\*\* (JOB \d+ .*CANCELLED.*?) \*\*\*", line) for line in lines)
    return next((match[1] for match in found if match), None)


def _undecided(environment: Mapping[str, str], launch: LaunchConfig) -> dict[str, str]:
    """The environment without the defaults of sbatch's that would win over what the job file says."""
    decided = {"SBATCH_JOB_NAME", "SBATCH_OUTPUT", "SBATCH_REQUEUE", "SBATCH_GPUS_PER_NODE"}
    given = {
        "SBATCH_PARTITION": launch.partition,
        "SBATCH_ACCOUNT": launch.account,
        "SBATCH_TIMELIMIT": launch.time_limit,
    }
    decided |= {name for name, value in given.items() if value is not None}
    return {name: value for name, value in environment.items() if name not in decided}


def _refusal(complaints: str) -> Problem:
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in complaints.splitlines()]
    why = "; ".join(line for line in lines if line.strip()) or "it says nothing"
    remedy = "change the launch settings; launch.sbatch_options takes what a cluster asks for besides"
    return Problem("sbatch", f"refuses the job ({why})", remedy)

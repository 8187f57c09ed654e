"""Kill training runs at random moments, continue them with resume=auto, and compare their ends.

    python scripts/kill_test.py --kills 100

A tiny model with tp=2 on the CPU saves every few steps, asynchronously. At a random moment, set-up and saves
included, every process of the run gets SIGKILL at the same time, as when a machine loses its power, or the
launcher alone does, whose workers then have to end by themselves. The same command continues the run until it
finishes or is killed again; a run that has finished makes room for a new one. Every step's loss, taken from
the attempt that holds, must be to the bit that of a run which nobody disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from mlm.report.history import unbroken

SETTINGS = (
    "model=gpt2_tiny",
    "tp=2",
    "train.global_batch_size=4",
    "train.micro_batch_size=4",
    "train.log_interval=1",
    "train.eval_interval=0",
    "train.final_eval=false",
    "train.sample_tokens=0",
    "optim.warmup_steps=1",
    "launch.threads=1",
)
TRAINING_S = 3.0
"""Seconds after an attempt's first step within which it is killed: many steps and several saves."""


@dataclass
class Tally:
    """What was done to the runs and what came of it. lost: of each kill, the steps that were done again."""

    kills: int = 0
    launcher_only: int = 0
    before_a_step: int = 0
    cut_saves: int = 0
    passed_over: int = 0
    lost: list[int] = field(default_factory=list)
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


class Run:
    """A run and its command."""

    def __init__(self, run_dir: Path, steps: int, interval: int):
        self.run_dir, self.log = run_dir, run_dir.with_name(f"{run_dir.name}.log")
        settings = [*SETTINGS, f"train.steps={steps}", f"checkpoint.interval={interval}"]
        self.command = [sys.executable, "-m", "mlm.cli.train", *settings, f"run_dir={run_dir}", "resume=auto"]

    def start(self) -> subprocess.Popen[bytes]:
        """One attempt; what it says is added to the log."""
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)

    def finish(self) -> None:
        """An attempt that is left alone. Raises RuntimeError when it does not end well."""
        self.ended_well(self.start().wait())

    def ended_well(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"an attempt ended with code {code}:\n{self.words()[-3000:]}")

    def losses(self) -> dict[int, float]:
        """Step -> loss, of the attempt that holds."""
        return {r["step"]: r["loss"] for r in unbroken(self.records()) if r["kind"] == "train"}

    def records(self) -> list[dict[str, Any]]:
        records = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.run_dir / "metrics.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):  # the line that an attempt died over
                    records.append(json.loads(line))
        return records

    def words(self) -> str:
        """All that its attempts have said."""
        return self.log.read_text(errors="replace")


def kill(launcher: subprocess.Popen[bytes], *, launcher_only: bool) -> None:
    """SIGKILL to every process of the run at once, or to the launcher alone."""
    root = psutil.Process(launcher.pid)
    family = [root]
    if not launcher_only:
        root.suspend()  # it starts nobody now, and nobody sees the others die
        family += root.children(recursive=True)
    for process in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    launcher.wait()


def wait_for_the_moment(
    run: Run, launcher: subprocess.Popen[bytes], first_step_s: float, chance: random.Random
) -> bool:
    """Half of the moments are anywhere in an attempt, half after its first step; True: it has ended before.

    first_step_s: seconds from an attempt's start to its first step.
    """
    moment_s = chance.uniform(0.2, first_step_s + TRAINING_S)
    if chance.random() < 0.5:
        wait_for_a_record(run, launcher)
        moment_s = chance.uniform(0, TRAINING_S)
    try:
        run.ended_well(launcher.wait(moment_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_for_a_record(run: Run, launcher: subprocess.Popen[bytes]) -> None:
    """Until the attempt has something to record, or has ended."""
    before = len(run.records())
    while len(run.records()) <= before and launcher.poll() is None:
        time.sleep(0.02)


def kill_until_finished(
    run: Run, tally: Tally, kills: int, first_step_s: float, chance: random.Random
) -> None:
    """Kill each attempt of the run at some moment, until it has finished or the kills are used up."""
    while tally.kills < kills:
        launcher = run.start()
        if wait_for_the_moment(run, launcher, first_step_s, chance):
            return
        launcher_only = chance.random() < 0.5
        kill(launcher, launcher_only=launcher_only)
        tally.kills += 1
        tally.launcher_only += launcher_only
        tally.before_a_step += not any(record["kind"] == "train" for record in run.records())
    run.finish()


def add_up(run: Run, tally: Tally, expected: dict[int, float]) -> None:
    """What a finished run tells of its past, and whether it ended as it had to."""
    tally.runs += 1
    words = run.words()
    tally.cut_saves += words.count("never completed")
    tally.passed_over += words.count("passing over")
    step = 0
    for record in run.records():
        if record["kind"] == "resume":
            tally.lost.append(step - record["step"])
        if record["kind"] in ("train", "resume"):
            step = record["step"]
    found = run.losses()
    for step in sorted({*found, *expected}):
        if found.get(step) != expected.get(step):
            tally.wrong.append(
                f"{run.run_dir.name}, step {step}: {found.get(step)}, not {expected.get(step)}"
            )


def main() -> int:
    """Print the tally; 0 when every killed run has ended like the undisturbed one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300, help="of a run")
    parser.add_argument("--interval", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, help="where the runs lie; left out: a temporary one")
    given = parser.parse_args()
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills_")))
        tally, final = try_them(folder, given.kills, given.steps, given.interval, random.Random(given.seed))
    print(f"{tally.kills} kills, {tally.launcher_only} of the launcher alone, in {tally.runs} runs")
    print(f"{tally.before_a_step} before any step was done, {tally.cut_saves} saves cut short")
    print(f"{tally.passed_over} checkpoints that had a name and were not whole")
    print(f"at most {max(tally.lost, default=0)} steps done again, a checkpoint every {given.interval} steps")
    print(f"final loss {final!r} in all runs" if not tally.wrong else "\n".join(tally.wrong))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if tally.wrong else 0


def try_them(
    folder: Path, kills: int, steps: int, interval: int, chance: random.Random
) -> tuple[Tally, float]:
    """The undisturbed run and as many killed ones as it takes; returns the tally and the final loss."""
    tally, calm = Tally(), Run(folder / "undisturbed", steps, interval)
    began, launcher = time.monotonic(), calm.start()
    wait_for_a_record(calm, launcher)
    first_step_s = time.monotonic() - began
    calm.ended_well(launcher.wait())
    expected = calm.losses()
    number = 0
    while tally.kills < kills:
        number += 1
        run = Run(folder / f"killed_{number}", steps, interval)
        kill_until_finished(run, tally, kills, first_step_s, chance)
        add_up(run, tally, expected)
    return tally, expected[steps]


if __name__ == "__main__":
    sys.exit(main())

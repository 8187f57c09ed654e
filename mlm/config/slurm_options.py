"""What launch.* says to sbatch, checked before it stands in a job file."""

from __future__ import annotations

import re

from mlm.config.schema import LaunchConfig
from mlm.errors import Problem

_TIME = re.compile(r"\d+(:\d{2}){0,2}|\d+-\d{1,2}(:\d{2}){0,2}|UNLIMITED|INFINITE")
_WORD = re.compile(r"[\w.,@%+/:-]+")
_DERIVED = {
    "--nodes": "tp, pp, dp and launch.devices_per_node",
    "-N": "tp, pp, dp and launch.devices_per_node",
    "--ntasks": "tp, pp and dp",
    "-n": "tp, pp and dp",
    "--ntasks-per-node": "launch.devices_per_node",
    "--gpus-per-node": "launch.devices_per_node",
    "--cpus-per-task": "launch.threads",
    "-c": "launch.threads",
    "--partition": "launch.partition",
    "-p": "launch.partition",
    "--account": "launch.account",
    "-A": "launch.account",
    "--time": "launch.time_limit",
    "-t": "launch.time_limit",
    "--output": "run_dir",
    "-o": "run_dir",
    "--wait": "launch.wait",
    "-W": "launch.wait",
}
"""Options that the job file has already -> what decides them."""


def slurm_problems(launch: LaunchConfig) -> list[Problem]:
    """What is wrong with the settings of a Slurm job, as far as no cluster is needed to see it."""
    problems = []
    for key, value in (("launch.partition", launch.partition), ("launch.account", launch.account)):
        if value is not None and not _WORD.fullmatch(value):
            problems.append(Problem(f"{key}={value}", "is no name of one word", f"use {key}=NAME"))
    if launch.time_limit is not None and not _TIME.fullmatch(launch.time_limit):
        where = f"launch.time_limit={launch.time_limit}"
        remedy = "use minutes, hours:minutes:seconds or days-hours:minutes:seconds"
        problems.append(Problem(where, "is no time limit of Slurm's", remedy))
    for option in launch.sbatch_options:
        problems += _option_problems(option)
    return problems


def _option_problems(option: str) -> list[Problem]:
    where = f"launch.sbatch_options: {option}"
    if not re.fullmatch(r"-[A-Za-z].*|--[a-z][a-z-]*(=.+)?", option):
        return [Problem(where, "is no option of sbatch", "write --option=value, one an entry")]
    name = option.partition("=")[0] if option.startswith("--") else option[:2]
    if name in _DERIVED:
        return [Problem(where, "is decided elsewhere", f"set {_DERIVED[name]}")]
    return []

"""What a launch decides from configuration, machine and environment, and everything that forbids it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from mlm.config.schema import LaunchConfig, PrecisionConfig, TrainConfig
from mlm.errors import Problem
from mlm.launch import fit, rundir
from mlm.launch.machine import Machine
from mlm.launch.slurm.plan import SlurmPlan, plan
from mlm.launch.step import Step, choose_step


class Layout(Protocol):
    """What any configuration says of the processes that it wants."""

    @property
    def tp(self) -> int: ...
    @property
    def pp(self) -> int: ...
    @property
    def dp(self) -> int | None: ...
    @property
    def launch(self) -> LaunchConfig: ...
    @property
    def precision(self) -> PrecisionConfig: ...


@dataclass(frozen=True)
class Launch:
    """What is going to run. With problems beside it, the best that can be said of it.

    processes: of the whole job; local_processes: on this machine; threads: of each on CPU.
    job_id: of the Slurm job around it all; slurm: the nodes and tasks that launch=slurm is to start.
    goes_on: whether the run that run_dir holds already is continued.
    warnings: what the user should know though it forbids nothing.
    """

    step: Step | None
    device: str
    processes: int
    local_processes: int
    dp: int
    threads: int
    precision: str
    run_dir: Path
    warnings: tuple[str, ...] = ()
    job_id: str | None = None
    slurm: SlurmPlan | None = None
    goes_on: bool = False


def preflight(
    config: TrainConfig,
    machine: Machine,
    environment: Mapping[str, str],
    *,
    cwd: Path,
    now: datetime,
    goes_on: bool = False,
    has_package: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None,
) -> tuple[Launch, list[Problem]]:
    """The launch that config means on this machine, and every problem that stands against it.

    goes_on: whether the run that run_dir holds is continued. Touches nothing: no directory is made, no worker
    started.
    """
    run_dir = rundir.choose(config.run_dir, config.model.name, cwd, now)
    launch, problems = place(config, machine, environment, run_dir, "training")
    if launch.slurm is None:
        # The nodes of a Slurm job are not here; its tasks look at their own machine.
        problems += fit.problems(config, launch.device, launch.local_processes, machine)
    launch = replace(launch, goes_on=goes_on)
    problems += rundir.problems(run_dir, job_id=launch.job_id, goes_on=goes_on)
    problems += _missing_logger(config, has_package)
    return launch, problems


def place(
    config: Layout, machine: Machine, environment: Mapping[str, str], run_dir: Path, doing: str
) -> tuple[Launch, list[Problem]]:
    """Processes, devices, threads and precision of a launch, and what stands against them.

    doing: the work, in a word, for warnings. Expects degrees that mlm.config.checks has seen, but does not
    stumble over impossible ones: they count as 1 here.
    """
    warnings: list[str] = []
    shared = max(1, config.tp) * max(1, config.pp)
    dp = None if config.dp is None else max(1, config.dp)
    step, problems = choose_step(config.launch.mode, environment, shared, dp)
    if config.launch.mode == "slurm" and step is None:
        return _place_on_nodes(config, machine, environment, run_dir)
    device = _device(config, machine, doing, warnings, problems)
    world_problems = bool(problems) and step is not None
    if step is not None:
        processes, local_processes = step.world_size, step.local_world_size
        dp = dp or max(1, processes // shared)
    else:
        dp = dp or _inferred_dp(config, device, machine, shared, warnings)
        processes = local_processes = shared * dp
    if not world_problems:
        problems += _too_many_processes(config, step, device, local_processes, machine)
    precision = _precision(config, device, machine, problems)
    # Slurm may bind each task to its own cores, which are then all that it sees of the machine.
    sharing = 1 if step is not None and step.own_cores else local_processes
    if device == "cpu" and sharing > machine.cores:
        warnings.append(f"{local_processes} processes on {machine.cores} cores will take turns")
    threads = config.launch.threads or max(1, machine.cores // sharing)
    job_id = environment.get("SLURM_JOB_ID")
    return (
        Launch(
            step, device, processes, local_processes, dp, threads, precision, run_dir, tuple(warnings), job_id
        ),
        problems,
    )


def _place_on_nodes(
    config: Layout, machine: Machine, environment: Mapping[str, str], run_dir: Path
) -> tuple[Launch, list[Problem]]:
    """The same of launch=slurm, whose nodes are not here: threads and precision are those asked for."""
    found, problems, warnings = plan(config, machine, environment)
    launch = Launch(
        step=None,
        device=found.device,
        processes=found.tasks,
        local_processes=found.tasks_per_node,
        dp=found.dp,
        threads=found.cores_per_task or 1,
        precision=config.precision.name,
        run_dir=run_dir,
        warnings=tuple(warnings),
        slurm=found,
    )
    return launch, problems


def _device(
    config: Layout, machine: Machine, doing: str, warnings: list[str], problems: list[Problem]
) -> str:
    asked = config.launch.device
    cpu_build = f"the installed torch {machine.torch_version} is built without CUDA"
    if asked == "cuda" and not machine.can_use_cuda:
        nothing = "this machine shows no CUDA device (CUDA_VISIBLE_DEVICES?)"
        wrong = cpu_build if machine.accelerators else nothing
        problems.append(Problem("launch.device=cuda", f"cannot be used: {wrong}", "use launch.device=cpu"))
        # Once refused, nothing else is measured against devices that are not there.
        return "cpu"
    if asked == "auto" and machine.accelerators and machine.torch_cuda is None:
        warnings.append(f"{cpu_build}: {doing} on CPU beside {_names(machine)}")
    if asked in ("cuda", "cpu"):
        return asked
    return "cuda" if machine.can_use_cuda else "cpu"


def _inferred_dp(config: Layout, device: str, machine: Machine, shared: int, warnings: list[str]) -> int:
    if device != "cuda":
        return 1
    devices = len(machine.accelerators)
    dp = max(1, devices // shared)
    idle = devices - shared * dp
    if idle > 0:
        why = f"tp*pp={shared} does not divide {devices}"
        warnings.append(f"{idle} of {devices} CUDA devices stay idle: {why}")
    return dp


def _too_many_processes(
    config: Layout, step: Step | None, device: str, local_processes: int, machine: Machine
) -> list[Problem]:
    devices = len(machine.accelerators)
    # Under srun each task may see only its own device, which is then device 0 for everybody.
    own_device_each = step is not None and step.starter != "torchrun" and devices == 1
    if device != "cuda" or local_processes <= devices or own_device_each:
        return []
    degrees = f"tp={config.tp}" + (f" dp={config.dp}" if config.dp is not None else "")
    where = degrees if step is None else f"{local_processes} processes from {step.starter}"
    return [
        Problem(
            where,
            f"needs {local_processes} CUDA devices, one for each process, and this machine shows {devices}",
            f"use tp*dp <= {devices}, more machines (launch=dry_run shows the command), or launch.device=cpu",
        )
    ]


def _precision(config: Layout, device: str, machine: Machine, problems: list[Problem]) -> str:
    asked = config.precision.name
    has_bf16 = all(accelerator.has_bf16 for accelerator in machine.accelerators)
    if asked == "auto":
        # Devices without bf16 train in fp16, as those of the paper did.
        return "fp32" if device != "cuda" else "bf16" if has_bf16 else "fp16"
    if asked == "bf16" and device == "cuda" and not has_bf16:
        wrong = f"needs a device of compute capability 8.0 or more, unlike {_names(machine)}"
        problems.append(Problem("precision=bf16", wrong, "use precision=fp16, or fp32"))
    return asked


def _missing_logger(config: TrainConfig, has_package: Callable[[str], bool]) -> list[Problem]:
    package = {"tensorboard": "tensorboard", "wandb": "wandb"}.get(config.logger.kind)
    if package is None or has_package(package):
        return []
    return [
        Problem(
            f"logger={config.logger.kind}",
            f"needs the package {package}, which is not installed",
            f"pip install {package}, or use logger=none",
        )
    ]


def _names(machine: Machine) -> str:
    names = sorted({accelerator.name for accelerator in machine.accelerators})
    return f"{len(machine.accelerators)} x {' / '.join(names)}"

"""How processes come to be, and where they report."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class LaunchConfig:
    """How worker processes come to be."""

    mode: str
    """auto, local, join, slurm, dry_run."""
    device: str = "auto"
    """cuda, cpu, or auto: cuda when this machine has devices and the installed torch can use them."""
    threads: int | None = None
    """CPU threads per worker; null: the cores shared out among the workers of this machine."""
    failure_grace_s: float = 10.0
    """Seconds from one worker's failure until the remaining workers are killed."""
    save_grace_s: float = 600.0
    """Seconds that a signal leaves to finish the step and save, until the workers are killed."""
    max_restarts: int = 0
    """How often a run whose worker died is started again from its newest checkpoint."""
    timeout_s: float = 1800.0
    """Seconds a collective may take before the run is ended."""
    devices_per_node: int | None = None
    """Under launch=slurm, the processes of one node; null: its GPUs, or the tasks of the allocation."""
    partition: str | None = None
    """Slurm partition to submit to; null: the cluster's default."""
    account: str | None = None
    """Slurm account that pays; null: yours by default."""
    time_limit: str | None = None
    """Limit of the Slurm job, as sbatch takes it: 24:00:00, 2-00:00:00 or minutes; null: the partition's."""
    sbatch_options: list[str] = field(default_factory=list)
    """Further options of sbatch, one an entry, as they are typed: --qos=high."""
    wait: bool = False
    """Wait for the submitted job and end with its exit code; otherwise submit and return."""


@dataclass(kw_only=True)
class LoggerConfig:
    """Where metrics go besides the console and metrics.jsonl."""

    kind: str
    """none, wandb or tensorboard."""
    project: str = "mlm"
    """Project name at wandb."""

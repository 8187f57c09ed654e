"""Saving while training goes on: every rank writes what it owns, and a checkpoint is whole or not there."""

from __future__ import annotations

import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save as save_planned
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from mlm.checkpoint.folder import aside, publish, retire, step_folder
from mlm.checkpoint.layout import as_global
from mlm.checkpoint.manifest import FileRecord, Manifest, record_of, write_manifest, write_through
from mlm.checkpoint.state import STATE, TrainingState
from mlm.checkpoint.storage import ShardWriter
from mlm.errors import CheckpointError
from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import Declaration

Tensors = Mapping[str, tuple[Tensor, Declaration]]

SPARE_SHARE = 0.02
"""Of the tensors' bytes, what index and other files may take besides."""


@dataclass(frozen=True)
class Outcome:
    """How one save ended. stall_s: seconds that training waited for it; seconds: from its start to its end.

    error: why there is no checkpoint, None when there is. retired: older ones that were deleted.
    """

    step: int
    directory: Path
    bytes: int
    stall_s: float
    seconds: float
    error: str | None
    retired: tuple[Path, ...] = ()


class Saver:
    """Writes the checkpoints of a run into `folder`, one at a time; built and called by all ranks together.

    about: versions and the like for the manifest. attached: small files to keep inside every checkpoint,
    name -> path. keep_last and keep_every: see folder.retire. Asynchronous saves copy the tensors to memory
    of their own (on the CPU, as much again as a rank's state) and write from there in a thread.
    """

    def __init__(
        self,
        folder: Path,
        mesh: Mesh,
        *,
        keep_last: int = 1,
        keep_every: int = 0,
        asynchronous: bool = False,
        about: Mapping[str, Any] | None = None,
        attached: Mapping[str, Path] | None = None,
    ):
        self.folder, self.mesh = folder, mesh
        self.keep_last, self.keep_every, self.asynchronous = keep_last, keep_every, asynchronous
        self.about, self.attached = dict(about or {}), dict(attached or {})
        # Groups of their own: the thread's collectives must not get between those of training.
        self._group = dist.new_group(backend="gloo") if mesh.world_size > 1 else None
        self._cpu_mesh = _cpu_mesh(mesh)
        self._staged: dict[str, Tensor] = {}
        self._thread: threading.Thread | None = None
        self._outcomes: list[Outcome] = []

    def save(self, state: TrainingState, tensors: Tensors) -> None:
        """Begin the checkpoint of state.step, after the one in flight has ended; collective.

        Returns when the tensors may change again: asynchronously when they are copied, otherwise when the
        checkpoint is on the disk. What came of it is in `outcomes`; a failed save raises nothing.
        """
        started = time.perf_counter()
        self.wait()
        if self.asynchronous:
            tensors = self._stage(tensors)
            stall_s = time.perf_counter() - started
            # Not a daemon: an interpreter that ends waits for what it has begun to write.
            self._thread = threading.Thread(target=self._run, args=(state, tensors, started, stall_s))
            self._thread.start()
        else:
            self._run(state, tensors, started, None)

    def wait(self) -> None:
        """Until no save is in flight."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def outcomes(self) -> list[Outcome]:
        """Of the saves that have ended since the last call, in order."""
        ended, self._outcomes = self._outcomes, []
        return ended

    def _stage(self, tensors: Tensors) -> Tensors:
        for name, (tensor, _) in tensors.items():
            if name not in self._staged:
                pin = tensor.device.type == "cuda"
                self._staged[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pin)
            self._staged[name].copy_(tensor, non_blocking=True)
        devices = {tensor.device for tensor, _ in tensors.values()}
        for device in devices:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
        return {name: (self._staged[name], declaration) for name, (_, declaration) in tensors.items()}

    def _run(self, state: TrainingState, tensors: Tensors, started: float, stall_s: float | None) -> None:
        directory = step_folder(self.folder, state.step)
        error: str | None = None
        written, retired = 0, list[Path]()
        try:
            written, retired = self._write(directory, state, tensors)
        except CheckpointError as failure:
            error = str(failure)
        # Anything else would end a thread without a word.
        except Exception as failure:
            error = f"{directory} could not be written: {type(failure).__name__}: {failure}"
        seconds = time.perf_counter() - started
        self._outcomes.append(
            Outcome(
                state.step,
                directory,
                written,
                seconds if stall_s is None else stall_s,
                seconds,
                error,
                tuple(retired),
            )
        )

    def _write(self, directory: Path, state: TrainingState, tensors: Tensors) -> tuple[int, list[Path]]:
        """Bytes written and checkpoints retired. Raises CheckpointError, the same on every rank."""
        temporary = aside(directory)
        self._agree(lambda: self._make_room(directory, temporary, tensors) if self.mesh.rank == 0 else None)
        writer = ShardWriter(temporary)
        try:
            with one_process_is_meant():
                save_planned(
                    as_global(_on_cpu(tensors), self._cpu_mesh),
                    storage_writer=writer,
                    process_group=self._group,
                    no_dist=self._group is None,
                )
        except CheckpointException as error:  # derives from BaseException
            self._agree(lambda: shutil.rmtree(temporary, ignore_errors=True) if self.mesh.rank == 0 else None)
            raise CheckpointError(f"{temporary} could not be written: {_cause(error)}") from None
        finished: list[Any] = [0, []]

        def finish() -> None:
            files = {**writer.records, **self._small_files(temporary, state)}
            manifest = Manifest(state.step, files, self.about)
            write_manifest(temporary, manifest)
            publish(directory)
            finished[0] = manifest.total_bytes
            finished[1] = retire(
                self.folder, keep_last=self.keep_last, keep_every=self.keep_every, just_written=directory
            )

        self._agree(lambda: finish() if self.mesh.rank == 0 else None)
        return finished[0], finished[1]

    def _make_room(self, directory: Path, temporary: Path, tensors: Tensors) -> None:
        if directory.exists():
            raise CheckpointError(f"{directory} exists: a checkpoint is never overwritten; move it away")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        needed = sum(torch.Size(d.shape).numel() * t.element_size() for t, d in tensors.values())
        free = shutil.disk_usage(temporary).free
        if free < needed * (1 + SPARE_SHARE):
            shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(
                f"{directory} needs {needed / 2**20:,.1f} MiB and the disk has {free / 2**20:,.1f} MiB free: "
                "make room, or keep fewer checkpoints (checkpoint.keep_last)"
            )

    def _small_files(self, temporary: Path, state: TrainingState) -> dict[str, FileRecord]:
        records = {STATE: write_through(temporary / STATE, state.to_json())}
        for name, path in self.attached.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, temporary / name)
            with (temporary / name).open("rb") as file:
                os.fsync(file.fileno())
            records[name] = record_of(temporary / name)
        return records

    def _agree(self, act: Any) -> None:
        """Do it, then raise on every rank what went wrong on any."""
        error: str | None = None
        try:
            act()
        except CheckpointError as failure:
            error = str(failure)
        except OSError as failure:
            error = f"{failure.filename or self.folder} could not be written: {failure.strerror or failure}"
        errors: list[str | None] = [error]
        if self._group is not None:
            errors = [None] * self.mesh.world_size
            dist.all_gather_object(errors, error, group=self._group)
        first = next((e for e in errors if e is not None), None)
        if first is not None:
            raise CheckpointError(first)


def _on_cpu(tensors: Tensors) -> dict[str, tuple[Tensor, Declaration]]:
    return {name: (tensor.to("cpu"), declaration) for name, (tensor, declaration) in tensors.items()}


def _cpu_mesh(mesh: Mesh) -> DeviceMesh | None:
    """The job's mesh for tensors on the CPU."""
    if mesh.device_mesh is None or mesh.device_mesh.device_type == "cpu":
        return mesh.device_mesh
    shape = (mesh.pp.size, mesh.dp.size, mesh.tp.size)
    return init_device_mesh("cpu", shape, mesh_dim_names=("pp", "dp", "tp"))


def _cause(error: CheckpointException) -> str:
    """The first rank's failure in a line; torch's own text holds every rank's traceback."""
    for rank, failure in sorted(error.failures.items()):
        cause = failure[0] if isinstance(failure, tuple) else failure
        return f"{cause} (rank {rank})"
    return str(error).strip().splitlines()[0]


@contextmanager
def one_process_is_meant() -> Iterator[None]:
    """Keep torch from warning of what no_dist=True asks for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninit")
        yield

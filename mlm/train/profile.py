"""Recording chosen steps with torch's profiler: a trace for eyes and a table of where the time went."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile, record_function

from mlm.files import write_whole
from mlm.parallel.collectives import all_gathered, all_reduced
from mlm.parallel.device import synchronise
from mlm.parallel.mesh import Mesh
from mlm.train.log import logger
from mlm.train.trace import WAIT, StepTimes, step_times


class StepProfiler:
    """Records the steps it was given; around all others, and when given none, it does and costs nothing."""

    def __init__(self, steps: Sequence[int], run_dir: Path, mesh: Mesh, device: torch.device):
        self.steps = sorted(steps)
        self.folder, self.mesh, self.device = run_dir / "profile", mesh, device
        self._recording: profile | None = None
        self._recorded: list[profile] = []

    def __contains__(self, step: int) -> bool:
        return step in self.steps

    def start(self) -> None:
        """Begin to record; collective, so that no rank's first step waits for a rank that is not ready."""
        if self.steps and not self._recorded:
            # Below this level its library tells standard error that it starts and stops.
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        self._recording = profile()  # of all kinds of device that are there
        self._recording.start()
        for axis in (self.mesh.tp, self.mesh.dp, self.mesh.pp):
            all_reduced(torch.zeros(1, device=self.device), axis)
        synchronise(self.device)

    def stop(self) -> None:
        """End the recording that start() began."""
        assert self._recording is not None, "stop() ends what start() began"
        with self.span(WAIT):
            synchronise(self.device)
        self._recording.stop()
        self._recorded.append(self._recording)
        self._recording = None

    @property
    def recording(self) -> bool:
        return self._recording is not None

    def span(self, name: str) -> AbstractContextManager[object]:
        """A range of that name in the trace; nothing while nothing is recorded."""
        return record_function(name) if self.recording else nullcontext()

    def write(self) -> list[StepTimes] | None:
        """Write rank<R>.json.gz and, on rank 0, time.json; collective. Returns every rank's times.

        None when nothing was recorded, or when a rank could not write its trace, of which it warns: a run
        must not be lost over its profile.
        """
        if not self._recorded:
            return None
        try:
            mine = self._write_trace().values()
        except OSError as error:
            logger.warning(f"profile: the trace cannot be written: {error}")
            mine = [math.nan] * len(StepTimes.__dataclass_fields__)
        self._recorded.clear()
        rows = torch.tensor([mine], dtype=torch.float64, device=self.device)  # [1, kinds]
        # Ranks are numbered with tp fastest, then dp, then pp: gathered in this order they stand by number.
        for axis in (self.mesh.tp, self.mesh.dp, self.mesh.pp):
            rows = all_gathered(rows, axis, dim=0)
        times = [StepTimes.of(row) for row in rows.tolist()]  # [ranks, kinds]
        if not all(math.isfinite(each.step_s) for each in times):
            return None
        if self.mesh.rank == 0:
            ranks = [{"rank": rank, **asdict(each)} for rank, each in enumerate(times)]
            text = json.dumps({"steps": self.steps, "ranks": ranks}, indent=2)
            write_whole(self.folder / "time.json", f"{text}\n".encode())
        return times

    def _write_trace(self) -> StepTimes:
        self.folder.mkdir(exist_ok=True)
        target = self.folder / f"rank{self.mesh.rank}.json.gz"
        traces: list[dict[str, Any]] = []
        for part in self._recorded:
            raw = target.with_suffix(".partial")
            try:
                part.export_chrome_trace(str(raw))
                traces.append(json.loads(raw.read_text(encoding="utf-8")))
            finally:
                raw.unlink(missing_ok=True)
        joined = traces[0] | {"traceEvents": [event for trace in traces for event in trace["traceEvents"]]}
        assert len({trace["baseTimeNanoseconds"] for trace in traces}) == 1, "parts of one clock"
        write_whole(target, gzip.compress(json.dumps(joined).encode(), compresslevel=5))
        return step_times((trace["traceEvents"] for trace in traces), len(self.steps))

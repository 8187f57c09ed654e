"""When a run saves, and what it says of it. How a checkpoint is written is mlm.checkpoint's affair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

import mlm
from mlm.checkpoint.best import Best, read_best
from mlm.checkpoint.state import TrainingState
from mlm.data.tokenizers import kept_files
from mlm.plan.parameters import count_parameters
from mlm.train.log import logger
from mlm.train.loggers import Metrics
from mlm.train.setup import Run

if TYPE_CHECKING:
    # Imported when it is needed: with torch's part of it, it costs a second at start-up.
    from mlm.checkpoint.save import Outcome, Saver

_ATTACHED = ("config.yaml", "data.json")
"""Files of the run in every checkpoint, with its tokenizer's: it can be read without the run around it."""
_STATE_BYTES = 12
"""Of a parameter in a checkpoint: its value and two moments in fp32."""
_SLOW_DISK_BYTES_PER_S = 200e6
_FIRST_SAVE_S = 10.0
"""That a first save may take however little it writes: torch's part of it is imported for it."""


class Checkpoints:
    """Saves a run every checkpoint.interval steps and at its end; collective over all ranks.

    newest: the newest checkpoint there is. failure: why the latest save gave none. best: the one with the
    highest score; None where nothing scores.
    """

    def __init__(self, run: Run, metrics: Metrics):
        config = run.config.checkpoint
        self.run, self.metrics, self.interval = run, metrics, config.interval
        self.newest: Path | None = run.resumed_from
        self.failure: str | None = None
        self.folder = run.run_dir / "checkpoints"
        self.best = read_best(self.folder) if run.resumed_from is not None else None
        self._to_be_best: Best | None = None
        state_bytes = _STATE_BYTES * count_parameters(run.config.model, task=run.config.finetune.task).total
        self._longest_s = _FIRST_SAVE_S + state_bytes / _SLOW_DISK_BYTES_PER_S
        self._measured = False
        self._saved_step = run.state.step if run.resumed_from is not None else -1
        # Without an interval there is one save, at the end, when no copy of the tensors is of use.
        self._saver = self._make_saver(asynchronous=config.asynchronous) if self.interval else None

    @property
    def seconds(self) -> float:
        """What a save may take: the longest so far, before the first a guess by a slow disk."""
        return self._longest_s

    def due(self, step: int) -> bool:
        """Whether the interval, or a score above all others, asks for a checkpoint after this step."""
        by_interval = self.interval > 0 and step % self.interval == 0
        return by_interval or (self._to_be_best is not None and self._to_be_best.step == step)

    def scored(self, step: int, figure: str, value: float) -> None:
        """Remember a step whose score is above all others: its checkpoint, made or to come, is then kept."""
        if self.best is None or value > self.best.value:
            self.best = self._to_be_best = Best(step, figure, value)
            if self._saved_step == step and self.failure is None:
                self._settle_best()

    def _settle_best(self) -> None:
        """Point `best` at a checkpoint that is there."""
        if self._to_be_best is not None and self.run.is_first:
            self._to_be_best.write(self.folder)
        self._to_be_best = None

    def save(self, state: TrainingState) -> None:
        """Begin the checkpoint of where training is; what comes of it is reported later."""
        from mlm.checkpoint.layout import moments, weights

        self._saved_step = state.step
        self._saver = self._saver or self._make_saver(asynchronous=False)
        # What is known to be best is kept by its name in a file, which the next save must find.
        self._saver.wait()
        self.report()
        tensors = weights(self.run.model) | moments(self.run.model, self.run.optimizer.named_moments())
        self._saver.save(state, tensors)
        self.report()

    def report(self) -> None:
        """Log and record the saves that have ended since the last time."""
        for outcome in self._saver.outcomes() if self._saver is not None else []:
            self._record(outcome)

    def finish(self, state: TrainingState) -> None:
        """Have a checkpoint of this state, or its failure, before going on."""
        # Until it has ended here as everywhere, ranks may differ in what they know of a save in flight.
        self.close()
        if self._saved_step != state.step or self.failure is not None:
            self.save(state)
            self.close()

    def close(self) -> None:
        """Wait for a save in flight: what has begun to be written is completed."""
        if self._saver is not None:
            self._saver.wait()
        self.report()

    def _make_saver(self, *, asynchronous: bool) -> Saver:
        from mlm.checkpoint.save import Saver

        config = self.run.config.checkpoint
        return Saver(
            self.folder,
            self.run.mesh,
            keep_last=config.keep_last,
            keep_every=config.keep_every,
            asynchronous=asynchronous,
            about={
                "mlm": mlm.__version__,
                "torch": str(torch.__version__),
                "tp": self.run.mesh.tp.size,
                "pp": self.run.mesh.pp.size,
                "dp": self.run.mesh.dp.size,
                "attempt": self.run.attempt,
            },
            attached={
                name: self.run.run_dir / name for name in (*_ATTACHED, *kept_files(self.run.data.tokenizer))
            },
        )

    def _record(self, outcome: Outcome) -> None:
        self.failure = outcome.error
        if outcome.error is None:
            self.newest = outcome.directory
            if self._to_be_best is not None and self._to_be_best.step == outcome.step:
                self._settle_best()
            self._longest_s = max(self._longest_s if self._measured else 0.0, outcome.seconds)
            self._measured = True
        if not self.run.is_first:
            return
        values = {"stall_s": outcome.stall_s, "seconds": outcome.seconds, "bytes": outcome.bytes}
        self.metrics.write("checkpoint", outcome.step, {**values, "error": outcome.error})
        if outcome.error is not None:
            logger.warning(f"step {outcome.step:>6}  no checkpoint: {outcome.error}")
            return
        retired = f", {len(outcome.retired)} older deleted" if outcome.retired else ""
        logger.info(
            f"step {outcome.step:>6}  checkpoint {outcome.directory.name}, {outcome.bytes / 2**20:,.1f} MiB "
            f"in {outcome.seconds:.2f} s, training waited {outcome.stall_s * 1e3:,.1f} ms{retired}"
        )

"""Where metrics go: metrics.jsonl always, wandb or TensorBoard when asked. Only rank 0 touches them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol

from mlm.config.schema import TrainConfig
from mlm.train.log import logger


class MetricSink(Protocol):
    """One destination of metrics."""

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """kind: train, valid, eval, checkpoint, resume; values: JSON scalars by name, units in the names."""

    def close(self) -> None: ...


class JsonLines:
    """run_dir/metrics.jsonl, one object a line, each written when it is known; a run that goes on appends."""

    def __init__(self, run_dir: Path):
        path = run_dir / "metrics.jsonl"
        _drop_cut_line(path)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        self._file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")

    def close(self) -> None:
        self._file.close()


class Wandb:
    """Weights & Biases. Without a key it records offline in the run directory; it never asks."""

    def __init__(self, run_dir: Path, config: TrainConfig, resolved: dict[str, Any]):
        import wandb

        mode = os.environ.get("WANDB_MODE")
        if mode is None and not _has_wandb_key():
            mode = "offline"
            logger.info(
                "wandb: no API key, recording offline; `wandb sync` in the run directory uploads it later"
            )
        self._run = wandb.init(
            project=config.logger.project,
            name=run_dir.name,
            dir=str(run_dir),
            config=resolved,
            mode=mode,  # type: ignore[arg-type]
            settings=wandb.Settings(silent=True, console="off", init_timeout=30),
        )
        # Our own step axis: wandb's must increase, and validation reports a step again.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        self._run.log({"step": step, **{f"{kind}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        self._run.finish()


class TensorBoard:
    """Event files in run_dir/tensorboard."""

    def __init__(self, run_dir: Path):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run_dir / "tensorboard"))

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class Metrics:
    """All sinks of a run. A sink other than metrics.jsonl that fails is dropped with a warning, once.

    attempt: how often the run was started, resumes included; every record says of which it is.
    """

    def __init__(
        self, run_dir: Path, config: TrainConfig, resolved: dict[str, Any], attempt: int, *, enabled: bool
    ):
        self._attempt = attempt
        self._sinks: list[MetricSink] = []
        if not enabled:
            return
        self._sinks.append(JsonLines(run_dir))
        try:
            if config.logger.kind == "wandb":
                self._sinks.append(Wandb(run_dir, config, resolved))
            elif config.logger.kind == "tensorboard":
                self._sinks.append(TensorBoard(run_dir))
        except Exception as error:
            logger.warning(f"logger={config.logger.kind} could not start, metrics.jsonl has all: {error}")

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        values = {"attempt": self._attempt, **values}
        for sink in list(self._sinks):
            try:
                sink.write(kind, step, values)
            except Exception as error:
                if isinstance(sink, JsonLines):
                    raise
                self._sinks.remove(sink)
                logger.warning(f"{type(sink).__name__} failed and is left out from now on: {error}")

    def close(self) -> None:
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                logger.warning(f"{type(sink).__name__} could not be closed: {error}")


def _drop_cut_line(path: Path) -> None:
    """Take away what stands behind the last newline: the line that an earlier attempt died over."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def _has_wandb_key() -> bool:
    """Whether wandb would find a key without asking: in the environment or its netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import netrc

    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("://")[-1].split("/")[0]
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False

"""Fine-tuning BERT to a task with labels (paper, section 5.3): RACE, MNLI, QQP and SQuAD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.data.order import SampleOrder
from mlm.data.tokenizers import load_tokenizer
from mlm.errors import DataError
from mlm.eval.predict import Encoded, on_device, predict
from mlm.finetune.prepared import fingerprint_of, mean_length
from mlm.finetune.tasks import TASKS
from mlm.train.objectives.base import Setting, ValidationResult


@dataclass(frozen=True)
class LabelledMicroBatch:
    """Samples with what is right for each, on the device."""

    inputs: Sequence[Tensor]
    targets: Tensor
    global_samples: int

    @property
    def samples(self) -> int:
        return len(self.targets)

    def loss(self, model: nn.Module, factor: float | Tensor) -> tuple[Tensor, Tensor]:
        """As MicroBatch.loss: the mean nll over samples, and the share of them that is right."""
        weights = torch.ones(self.samples, dtype=torch.float64, device=self.targets.device)
        weights *= factor / self.global_samples
        result: tuple[Tensor, Tensor] = model(*self.inputs, self.targets, weights)
        return result


class FineTuning:
    """As Objective, for a task of mlm.finetune.tasks.

    Epoch follows epoch without a seam: samples are numbered, an epoch is a permutation of them, and a step
    takes the next numbers, so that none is dropped at an epoch's end.
    """

    figures: Sequence[str] = ("train_accuracy",)
    """Of the samples of a step, with dropout: the right option, class, or beginning and end."""

    def __init__(self, setting: Setting):
        config = setting.config
        self.setting, self.task = setting, TASKS[config.objective.name]
        tokenizer = load_tokenizer(setting.data.tokenizer, setting.run_dir)
        examples = []
        for path, training in ((config.finetune.train_path, True), (config.finetune.dev_path, False)):
            assert path is not None, "the launcher refuses a fine-tuning without files"
            examples.append(self.task.read(Path(path), training=training).examples)
        if (now := fingerprint_of(*examples)) != setting.data.fingerprint:
            files = f"{config.finetune.train_path} or {config.finetune.dev_path}"
            raise DataError(
                f"{files} has changed since this run began (fingerprint {now[:12]}, was "
                f"{setting.data.fingerprint[:12]}): put the files back, or begin a new run"
            )
        limit = config.finetune.seq_length or config.model.seq_length
        self.train: Encoded = self.task.encode(examples[0], tokenizer, limit)
        self.dev: Encoded = self.task.encode(examples[1], tokenizer, limit)
        self.order = SampleOrder(len(self.train), 1, config.seed)
        self._mean_length = mean_length(self.train)

    @property
    def sequences(self) -> tuple[int, int]:
        """As Objective.sequences; their mean length in the training file, padding left out."""
        batch = self.setting.config.train.global_batch_size
        return batch * self.train.sequences_per_sample, self._mean_length

    @property
    def tokens_per_step(self) -> int:
        """As Objective.tokens_per_step: the mean step's, padding left out."""
        count, length = self.sequences
        return count * length

    def said(self, figures: Sequence[float]) -> str:
        """As Objective.said."""
        return f"right {figures[0]:.1%}"

    def micro_batches(self, numbers: NDArray[np.int64]) -> list[LabelledMicroBatch]:
        """As Objective.micro_batches; each is as wide as its longest sequence."""
        _, samples, _ = self.order.locate(numbers)
        config, device = self.setting.config.train, self.setting.device
        found = []
        for start in range(0, len(samples), config.micro_batch_size):
            batch = self.train.batch(samples[start : start + config.micro_batch_size].tolist())
            targets = torch.from_numpy(batch.targets).to(device, non_blocking=True)
            found.append(LabelledMicroBatch(on_device(batch, device), targets, config.global_batch_size))
        return found

    def validate(self, model: nn.Module, samples: int | None) -> ValidationResult | None:
        """As Objective.validate: every example of the development file, whatever `samples` says."""
        setting = self.setting
        scores = predict(
            model,
            self.dev,
            batch_size=setting.config.train.micro_batch_size,
            mesh=setting.mesh,
            device=setting.device,
            autocast=setting.autocast,
        )
        loss = _mean_nll(self.dev, scores)
        judged = self.task.judge(self.dev, scores)
        name, figure = judged.headline
        said = ", ".join(f"{key} {each.percent()}" for key, each in judged.figures.items())
        more = "".join(f", {key} {value:.4f}" for key, value in judged.values.items())
        values = {"loss": loss, **judged.values}
        for key, each in judged.figures.items():
            values |= {key: each.value, f"{key}_95_low": each.low, f"{key}_95_high": each.high}
        said = f"loss {loss:.4f}, {said}{more} ({figure.count:,} examples, 95 % intervals)"
        return ValidationResult(loss, values, said, (name, figure.value), judged.predictions)

    def rows(self) -> list[tuple[str, str]]:
        """As Objective.rows."""
        config = self.setting.config
        count, length = self.sequences
        per_epoch = len(self.train)
        return [
            ("task", f"{self.task.summary}"),
            ("recipe", config.finetune.recipe or "as typed"),
            (
                "training",
                f"{config.finetune.train_path}: {per_epoch:,} samples, {config.train.steps:,} steps of "
                f"{config.train.global_batch_size} are "
                f"{config.train.steps * config.train.global_batch_size / per_epoch:,.2f} epochs; "
                f"{count:,} sequences a step, {length:,} tokens in the mean",
            ),
            ("", self.train.describe_cuts()),
            ("development", f"{config.finetune.dev_path}; {self.dev.describe_cuts()}"),
        ]

    def sample_text(self, model: nn.Module) -> str | None:
        """None: it writes nothing."""
        return None

    def conclude(self, final: ValidationResult | None) -> tuple[list[str], dict[str, Any]]:
        """As Objective.conclude."""
        if final is None:
            return [], {}
        lines = [f"{self.task.name} at the end: {final.said}"]
        return lines, {f"valid_{name}": value for name, value in final.values.items() if name != "loss"}


def _mean_nll(encoded: Encoded, scores: Sequence[NDArray[np.float64]]) -> float:
    """The loss of training, without dropout, over all samples."""
    total = 0.0
    for sample, each in enumerate(scores):
        (target,) = encoded.batch([sample]).targets
        if each.ndim == 1:
            total -= float(np.log(max(each[target], np.finfo(np.float64).tiny)))
            continue
        logs = each - np.logaddexp.reduce(each, axis=0)
        total -= float(logs[target, [0, 1]].mean())
    return total / len(scores)

"""Which samples a step takes, and which of them are this rank's."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlm.train.packing import Packing
from mlm.train.setup import Run


def sample_numbers(run: Run, consumed_samples: int) -> NDArray[np.int64]:
    """Numbers of this dp rank's samples in the step that begins when so many have been consumed. [n]

    A step takes the numbers from consumed_samples onwards, dealt to dp ranks in runs: which samples make a
    step does not depend on dp or the micro batch.
    """
    mine = run.config.train.global_batch_size // run.mesh.dp.size
    first = consumed_samples + run.mesh.dp.rank * mine
    return np.arange(first, first + mine)


def micro_batches(run: Run, consumed_samples: int) -> tuple[list[Tensor], list[Packing] | None]:
    """Those samples on the device, ids [micro_batch, seq + 1] each, and the documents in them.

    Without resets at documents every sample is one stretch of text, and there is no packing.
    """
    numbers = sample_numbers(run, consumed_samples)
    if not run.resets_at_documents:
        return _split(run, run.train.batch(numbers)), None
    ids, starts = run.train.packed(numbers)
    data = run.config.data
    packing = [
        Packing.of(part, reset_positions=data.reset_positions, reset_attention=data.reset_attention)
        for part in _split(run, starts)
    ]
    return _split(run, ids), packing


def _split(run: Run, values: NDArray[np.int64]) -> list[Tensor]:
    on_device = torch.from_numpy(values).to(run.device, non_blocking=True)
    return list(on_device.split(run.config.train.micro_batch_size))

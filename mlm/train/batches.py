"""Which samples a step takes, and which of them are this rank's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlm.train.setup import Run


def sample_numbers(run: Run, consumed_samples: int) -> NDArray[np.int64]:
    """Numbers of this dp rank's samples in the step that begins when so many have been consumed. [n]

    A step takes the numbers from consumed_samples onwards, dealt to dp ranks in runs: which samples make a
    step does not depend on dp or the micro batch.
    """
    mine = run.config.train.global_batch_size // run.mesh.dp.size
    first = consumed_samples + run.mesh.dp.rank * mine
    return np.arange(first, first + mine)

"""What requests to a document stream give, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.documents import Runs


def tokens_of(runs: Runs, file: NDArray[Any], requests: int, length: int) -> NDArray[np.int64]:
    ids = np.full((requests, length), -1)
    runs.read_tokens(file, ids, np.arange(requests))
    return ids


def starts_of(runs: Runs, requests: int, length: int) -> NDArray[np.int64]:
    starts = np.full((requests, length), -1)
    runs.read_document_starts(starts, np.arange(requests))
    return starts

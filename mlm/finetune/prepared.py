"""A fine-tuning's files as PreparedData: what the launcher hands to the workers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Protocol

from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.data.split import NAMES


def fingerprint_of(*files: Sequence[Any]) -> str:
    """sha256 of the examples of several files."""
    whole = hashlib.sha256()
    for examples in files:
        whole.update(len(examples).to_bytes(8, "little"))
        for example in examples:
            content = repr(example).encode()
            whole.update(len(content).to_bytes(8, "little") + content)
    return whole.hexdigest()


class Samples(Protocol):
    """Encoded samples, each of a length in tokens."""

    def __len__(self) -> int: ...

    def length(self, sample: int, /) -> int: ...


def mean_length(samples: Samples) -> int:
    """Of their sequences, in whole tokens."""
    return round(sum(samples.length(sample) for sample in range(len(samples))) / len(samples))


def prepared(
    task: str,
    source: str,
    fingerprint: str,
    train_samples: int,
    dev_samples: int,
    tokenizer: dict[str, Any],
    seq_length: int,
    model_vocab_size: int,
) -> PreparedData:
    """The run's data.

    fingerprint: fingerprint_of its examples; tokenizer: as it describes itself; seq_length: tokens of a
    sequence at most.
    """
    counts = dict(zip(NAMES, (train_samples, dev_samples, 0), strict=True))
    return PreparedData(
        source=source,
        embedded=False,
        datasets=(
            PreparedDataset(
                name=task,
                prefix=source,
                ranges={name: (0, 0) for name in NAMES},
                documents=counts,
                first_documents=dict.fromkeys(NAMES),
                samples=counts,
            ),
        ),
        tokenizer=tokenizer,
        seq_length=seq_length,
        fingerprint=fingerprint,
        ln_vocab=math.log(model_vocab_size),
    )

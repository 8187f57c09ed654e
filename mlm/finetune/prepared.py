"""A fine-tuning's files as PreparedData: what the launcher hands to the workers."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Protocol

from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.data.split import NAMES
from mlm.finetune.encode import LabelledBatch


class Samples(Protocol):
    """Encoded samples."""

    def __len__(self) -> int: ...

    def batch(self, samples: list[int], /) -> LabelledBatch: ...


def fingerprint_of(train: Samples, dev: Samples) -> str:
    """sha256 of all that training and evaluation see: ids, segments and what is right."""
    whole = hashlib.sha256()
    for encoded in (train, dev):
        whole.update(len(encoded).to_bytes(8, "little"))
        for sample in range(len(encoded)):
            batch = encoded.batch([sample])
            for array in (*batch.inputs, batch.targets):
                whole.update(array.shape[-1].to_bytes(8, "little") + array.tobytes())
    return whole.hexdigest()


def prepared(
    task: str,
    source: str,
    train: Samples,
    dev: Samples,
    tokenizer: dict[str, Any],
    seq_length: int,
    model_vocab_size: int,
) -> PreparedData:
    """The run's data. tokenizer: as it describes itself; seq_length: tokens of a sequence at most."""
    counts = dict(zip(NAMES, (len(train), len(dev), 0), strict=True))
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
        fingerprint=fingerprint_of(train, dev),
        ln_vocab=math.log(model_vocab_size),
    )

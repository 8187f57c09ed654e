"""The scores that a fine-tuned model gives samples, each sample once, whatever the layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.finetune.encode import LabelledBatch
from mlm.parallel.collectives import all_reduced
from mlm.parallel.mesh import Mesh


class Encoded(Protocol):
    """Samples of a fine-tuning task as token ids: EncodedChoices, EncodedPairs or EncodedSpans."""

    @property
    def sequences_per_sample(self) -> int: ...

    def __len__(self) -> int: ...

    def length(self, sample: int, /) -> int: ...

    def batch(self, samples: Sequence[int], /) -> LabelledBatch: ...

    def describe_cuts(self) -> str: ...


def on_device(batch: LabelledBatch, device: torch.device) -> list[Tensor]:
    """A batch's inputs for a model's scores()."""
    return [torch.from_numpy(array).to(device, non_blocking=True) for array in batch.inputs]


@torch.no_grad()
def predict(
    model: nn.Module,
    encoded: Encoded,
    *,
    batch_size: int,
    mesh: Mesh,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    progress: Callable[[int, int], None] | None = None,
) -> list[NDArray[np.float64]]:
    """Of each sample its options' or classes' probabilities [k], or the logits of its window [seq, 2].

    Equal on every rank; collective over all ranks. The result does not depend on tp, dp or batch_size but
    for the rounding of matrix products. Samples of like length share a batch, and batches are dealt to dp
    ranks. model: with scores(), the bare module and not its data-parallel wrapper; it stays in the mode that
    it is in, and no random number is drawn. progress(done, total): samples, as far as this rank's tell.
    """
    lengths = np.asarray([encoded.length(sample) for sample in range(len(encoded))])
    longest_first = np.argsort(-lengths, kind="stable").tolist()
    batches = [longest_first[start : start + batch_size] for start in range(0, len(encoded), batch_size)]
    was_training = model.training
    model.eval()
    known: dict[int, NDArray[np.float64]] = {}
    mine = batches[mesh.dp.rank :: mesh.dp.size]
    try:
        for number, samples in enumerate(mine, start=1):
            batch = encoded.batch(samples)
            with autocast():
                scores = model.scores(*on_device(batch, device))  # type: ignore[operator]
            scores = scores.double()
            if batch.answerable is None:
                scores = scores.softmax(dim=1)
            values = scores.cpu().numpy()
            for row, sample in enumerate(samples):
                known[sample] = values[row, : lengths[sample]] if values.ndim == 3 else values[row]
            if progress is not None:
                progress(len(encoded) * number // len(mine), len(encoded))
    finally:
        model.train(was_training)
    return _everywhere(known, encoded, lengths, mesh, device)


def _everywhere(
    known: dict[int, NDArray[np.float64]],
    encoded: Encoded,
    lengths: NDArray[np.int64],
    mesh: Mesh,
    device: torch.device,
) -> list[NDArray[np.float64]]:
    """All samples' scores on every rank: each is known to one dp rank, and zero in the sum elsewhere."""
    if mesh.dp.size == 1:
        return [known[sample] for sample in range(len(encoded))]
    # Shapes follow from what all ranks know: only the number of classes is that of any known sample.
    width = torch.tensor([next(iter(known.values())).shape[-1] if known else 0])
    width = all_reduced(width.to(device), mesh.dp, torch.distributed.ReduceOp.MAX)
    spans = encoded.batch([0]).answerable is not None
    k = int(width.item())
    shapes = [(length, k) if spans else (k,) for length in lengths.tolist()]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    flat = np.zeros(ends[-1])
    for sample, values in known.items():
        flat[ends[sample] - values.size : ends[sample]] = values.ravel()
    summed = all_reduced(torch.from_numpy(flat).to(device), mesh.dp).cpu().numpy()
    return [part.reshape(shape) for part, shape in zip(np.split(summed, ends[:-1]), shapes, strict=True)]

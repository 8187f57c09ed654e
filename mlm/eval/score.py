"""The engine of evaluation: how likely a model finds the last tokens of each of many segments.

Causal attention makes three savings exact. Segments of different length share a batch, for padding on the
right is never seen from the left. What comes after the last attention, and with it the output layer, a large
part of a small model's work, is computed only where a target is scored. And no row depends on its
neighbours, so that batches can be dealt to ranks freely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlm.eval.requests import Scores, Segment
from mlm.parallel.collectives import all_reduced
from mlm.parallel.mesh import Mesh


class OutputScores(Protocol):
    """An output layer that scores targets."""

    def scores(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(nll in nats, id of the largest logit), 2 x [tokens], of x [tokens, hidden], targets [tokens]."""


class LeftToRightModel(Protocol):
    """What the engine needs of a model: its two halves."""

    head: OutputScores

    def hidden_states(self, ids: Tensor, at: Tensor) -> Tensor:
        """[n, hidden] of ids [batch, seq] at the flat positions [n]; none depends on what is to its right."""


@torch.no_grad()
def score(
    model: nn.Module,
    segments: Sequence[Segment],
    *,
    seq_length: int,
    vocab_size: int,
    batch_tokens: int,
    mesh: Mesh,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """Scores of all segments in their order, equal on every rank; collective over all ranks.

    The result does not depend on tp, dp or batch_tokens but for the rounding of matrix products. Dropout is
    off and no random number is drawn: training can go on afterwards as if nothing had happened.

    model: a LeftToRightModel that reads up to seq_length tokens, the bare module and not its data-parallel
    wrapper. batch_tokens: tokens of one forward pass of one rank, padding included; a longer segment makes a
    batch of its own. progress(done, total): called after each batch with tokens read, of the whole job as
    far as this rank's share of the work tells.
    """
    lengths = _checked_lengths(segments, seq_length)
    total = int(lengths.sum())
    batches = make_batches(lengths, min(batch_tokens, -(-total // mesh.dp.size)))
    costs = [_cost(segments, lengths, batch) for batch in batches]
    mine = deal(costs, mesh.dp.size)[mesh.dp.rank]
    my_total = sum(int(lengths[batches[index]].sum()) for index in mine)
    results = np.zeros((3, len(segments)))  # nll, all_greedy, last_greedy; zero where another rank fills in
    was_training = model.training
    model.eval()
    try:
        done = 0
        for index in mine:
            batch = batches[index]
            members = [segments[i] for i in batch]
            results[:, batch] = _score_batch(model, members, vocab_size, device, autocast)
            done += int(lengths[batch].sum())
            if progress is not None:
                progress(total * done // my_total, total)
    finally:
        model.train(was_training)
    gathered = all_reduced(torch.from_numpy(results).to(device), mesh.dp).cpu().numpy()
    if progress is not None and total:
        progress(total, total)
    nll, all_greedy, last_greedy = gathered
    return Scores(nll=nll, all_greedy=all_greedy > 0.5, last_greedy=last_greedy > 0.5)


def default_batch_tokens(device: torch.device) -> int:
    """Tokens of a forward pass: few enough for a CPU's cache, many enough to fill an accelerator."""
    return 1024 if device.type == "cpu" else 16_384


def make_batches(lengths: NDArray[np.int64], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Indices in batches of neighbours by length, longest first: little padding, and the most memory at once.

    A batch, padded to its longest member, holds at most batch_tokens tokens, or a single segment.
    """
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        rows = max(1, batch_tokens // int(lengths[order[start]]))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def deal(costs: Sequence[int], ranks: int) -> list[list[int]]:
    """Indices of the batches of each rank: each batch in turn goes to the rank with the least work so far."""
    hands: list[list[int]] = [[] for _ in range(ranks)]
    work = [0] * ranks
    for index, cost in enumerate(costs):
        least = work.index(min(work))
        hands[least].append(index)
        work[least] += cost
    return hands


def _checked_lengths(segments: Sequence[Segment], seq_length: int) -> NDArray[np.int64]:
    """Tokens that the model reads of each segment: all but the last."""
    lengths = np.array([len(segment.tokens) - 1 for segment in segments], dtype=np.int64)
    if len(lengths):
        assert lengths.max() <= seq_length, f"a segment of {lengths.max()} exceeds the context {seq_length}"
        scored = np.array([segment.scored for segment in segments])
        within = (scored >= 1) & (scored <= lengths)
        assert within.all(), "scored targets lie within their segment, behind its first token"
    return lengths


def _cost(segments: Sequence[Segment], lengths: NDArray[np.int64], batch: NDArray[np.int64]) -> int:
    """Relative work of a batch. Reading a token and scoring a target cost about as much in small models."""
    return int(lengths[batch[0]]) * len(batch) + sum(segments[i].scored for i in batch)


def _score_batch(
    model: nn.Module,
    segments: Sequence[Segment],
    vocab_size: int,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
) -> NDArray[np.float64]:
    """nll, all_greedy and last_greedy of each segment. Shapes: -> [3, segments]."""
    scored = np.array([segment.scored for segment in segments])
    lengths = np.array([len(segment.tokens) - 1 for segment in segments])
    width = lengths.max()
    ids = np.zeros((len(segments), width), dtype=np.int64)  # padding reads token 0, unseen by what is scored
    for row, segment in enumerate(segments):
        ids[row, : lengths[row]] = segment.tokens[:-1]
    targets = np.concatenate([segment.tokens[-segment.scored :] for segment in segments])
    assert max(targets.max(), ids.max()) < vocab_size, f"ids exceed the vocabulary of {vocab_size}"

    places = np.concatenate(
        [row * width + np.arange(lengths[row] - scored[row], lengths[row]) for row in range(len(segments))]
    )
    language_model = cast(LeftToRightModel, model)
    with autocast():
        at = torch.from_numpy(places).to(device)
        hidden = language_model.hidden_states(torch.from_numpy(ids).to(device), at)  # [targets, hidden]
        nll, argmax = language_model.head.scores(hidden, torch.from_numpy(targets).to(device))
    nll_of_target = nll.double().cpu().numpy()
    greedy = argmax.cpu().numpy() == targets
    ends = np.cumsum(scored)
    starts = ends - scored
    return np.stack(
        (
            np.add.reduceat(nll_of_target, starts),
            np.logical_and.reduceat(greedy, starts),
            greedy[ends - 1],
        )
    )

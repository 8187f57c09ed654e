"""BERT with the heads of fine-tuning (paper, section 5.3): one replicated layer on top of the split encoder.

A head's input is equal on all tensor-parallel ranks, and so is what dropout leaves of it: the default stream
of random numbers is theirs in common. Nothing is communicated.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mlm.models.bert import Bert, head_of
from mlm.models.design import Design
from mlm.parallel.mesh import Axis


class BertForClasses(Bert):
    """Which of several classes a sequence is of: dropout and a linear layer over the pooled [CLS].

    Shapes: ids, segments, real [n, seq] -> logits [n, classes] in at least fp32.
    """

    def __init__(
        self, design: Design, *, classes: int, tp: Axis, dtype: torch.dtype = torch.float32, **others: Any
    ):
        super().__init__(design, tp=tp, dtype=dtype, **others)
        self.dropout = design.dropout
        self.task_head = head_of(design, classes, tp, dtype)

    def scores(self, ids: Tensor, segments: Tensor, real: Tensor) -> Tensor:
        """The logits of each class."""
        pooled = self.pooled(self.hidden_states(ids, segments, real))  # [n, hidden]
        return _wide(self.task_head(F.dropout(pooled, self.dropout, self.training)))

    def forward(  # type: ignore[override]  # the task needs more than the encoder
        self, ids: Tensor, segments: Tensor, real: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(sum of weight * nll, sum of weight where the largest logit is right, float64 [1], detached).

        Shapes: labels int64, weights [samples].
        """
        return _loss_and_hits(self.scores(ids, segments, real), labels, weights)


class BertForChoice(BertForClasses):
    """Which of several options is right: one score for each option's sequence.

    options: of each question, side by side in the batch. Shapes: ids, segments, real [n * options, seq] ->
    scores [n, options]. The loss is that of classes, labels being the numbers of the right options.
    """

    def __init__(self, design: Design, *, options: int, **others: Any):
        super().__init__(design, classes=1, **others)
        self.options = options

    def scores(self, ids: Tensor, segments: Tensor, real: Tensor) -> Tensor:
        """The score of each option."""
        return super().scores(ids, segments, real).view(-1, self.options)  # [n * options, 1] -> [n, options]


class BertForSpans(Bert):
    """Where an answer begins and ends: dropout and a linear layer over every position; no pooler.

    Shapes: ids, segments, real, answerable [n, seq] -> logits [n, seq, 2] in at least fp32, the lowest number
    there is where no span may begin or end (answerable false).
    """

    def __init__(self, design: Design, *, tp: Axis, dtype: torch.dtype = torch.float32, **others: Any):
        super().__init__(design, tp=tp, pooler=False, dtype=dtype, **others)
        self.dropout = design.dropout
        self.task_head = head_of(design, 2, tp, dtype)

    def scores(self, ids: Tensor, segments: Tensor, real: Tensor, answerable: Tensor) -> Tensor:
        """The logits of beginnings and ends."""
        hidden = self.hidden_states(ids, segments, real)
        logits = _wide(self.task_head(F.dropout(hidden, self.dropout, self.training)))  # [n, seq, 2]
        return logits.masked_fill(~answerable.unsqueeze(-1), torch.finfo(logits.dtype).min)

    def forward(  # type: ignore[override]  # the task needs more than the encoder
        self,
        ids: Tensor,
        segments: Tensor,
        real: Tensor,
        answerable: Tensor,
        targets: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(sum of weight * mean nll of beginning and end, sum of weight where both are right, float64 [1]).

        Shapes: targets int64 [n, 2], weights [n].
        """
        logits = self.scores(ids, segments, real, answerable)
        nll = F.cross_entropy(logits, targets, reduction="none").mean(1)  # [n, seq, 2], [n, 2] -> [n]
        right = (logits.argmax(1) == targets).all(1)
        weights = weights.to(nll.dtype)
        return nll @ weights, (right.to(nll.dtype) @ weights).detach().double().view(1)


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _loss_and_hits(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    weights = weights.to(logits.dtype)
    nll = F.cross_entropy(logits, labels, reduction="none") @ weights
    hits = (logits.argmax(1) == labels).to(logits.dtype) @ weights
    return nll, hits.detach().double().view(1)

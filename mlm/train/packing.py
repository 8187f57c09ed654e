"""Several documents in one sample: positions that begin anew, attention that stays inside a document."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """What a model is told about the documents of its samples; each a tensor [batch, seq] or None."""

    positions: Tensor | None
    """Position of each token inside its document; None: inside its sample."""
    first_key: Tensor | None
    """Position of the first token that each one attends to, its document's; None: the sample's first."""

    @classmethod
    def of(cls, document_starts: Tensor, *, reset_positions: bool, reset_attention: bool) -> Packing:
        """document_starts: for each token the place in its sample where its document begins. [batch, seq]."""
        places = torch.arange(document_starts.shape[1], device=document_starts.device)
        return cls(
            positions=places - document_starts if reset_positions else None,
            first_key=document_starts if reset_attention else None,
        )


WHOLE = Packing(None, None)
"""Samples taken as one stretch of text each, wherever documents end in them."""

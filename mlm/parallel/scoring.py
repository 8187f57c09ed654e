"""What evaluation asks of logits split by vocabulary: a target's likelihood and the likeliest token."""

from __future__ import annotations

import torch
from torch import Tensor

from mlm.parallel.cross_entropy import (
    OwnedTargets,
    default_chunk_bytes,
    nll_and_exponentials,
    vocab_parallel_argmax,
)
from mlm.parallel.device import autocast_dtype, without_autocast
from mlm.parallel.mesh import Axis


@torch.no_grad()
def linear_scores(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    tp: Axis,
    vocab_size: int,
    chunk_bytes: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Output layer, nll of each target in nats and argmax in one, in chunks of tokens; no gradients.

    The logits are computed as in training's loss, in autocast's dtype where it is on; the rest in at least
    fp32. Shapes: hidden [tokens, hidden], weight [padded_vocab/tp, hidden], targets [tokens] (ids below
    vocab_size) -> nll [tokens], argmax [tokens] int64, equal on all ranks. Moves 5 values per token.
    """
    dtype = autocast_dtype(hidden)
    wide = torch.promote_types(dtype, torch.float32)
    x, w = hidden.to(dtype), weight.to(dtype)
    tokens, columns = x.shape[0], w.shape[0]
    chunk = max(1, (chunk_bytes or default_chunk_bytes(x.device)) // (columns * wide.itemsize))
    nll = torch.empty(tokens, dtype=wide, device=x.device)
    argmax = torch.empty(tokens, dtype=torch.int64, device=x.device)
    with without_autocast(x.device):
        for start in range(0, tokens, chunk):
            rows = slice(start, start + chunk)
            z = (x[rows] @ w.t()).to(wide)  # [chunk, padded_vocab/tp]
            argmax[rows] = vocab_parallel_argmax(z, tp, vocab_size)
            nll[rows], _ = nll_and_exponentials(z, OwnedTargets(targets[rows], columns, tp), tp, vocab_size)
    return nll, argmax

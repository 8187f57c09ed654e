"""Sampling text from a model, the same at every tensor-parallel degree."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlm.parallel.collectives import all_gathered
from mlm.parallel.mesh import Axis


@torch.no_grad()
def sample(
    model: nn.Module,
    prompt: Tensor,
    *,
    new_tokens: int,
    seq_length: int,
    vocab_size: int,
    tp: Axis,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Continue prompt [seq] by new_tokens ids; returns [seq + new_tokens], equal on all tp ranks.

    Every rank draws from a generator of the same seed over the same gathered logits (one position's, never a
    whole sequence's), so ranks agree without being told. Padded ids are never drawn. Tokens before the last
    seq_length are out of sight.
    """
    was_training = model.training
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    ids = prompt
    for _ in range(new_tokens):
        logits = model(ids[-seq_length:].unsqueeze(0))[0, -1]  # [padded_vocab/tp]
        logits = all_gathered(logits, tp, dim=0)[:vocab_size].double().cpu()  # [vocab]
        logits /= temperature
        if top_k is not None and top_k < vocab_size:
            logits[logits < logits.topk(top_k).values[-1]] = float("-inf")
        drawn = torch.multinomial(logits.softmax(0), 1, generator=generator)
        ids = torch.cat((ids, drawn.to(ids.device)))
    model.train(was_training)
    return ids

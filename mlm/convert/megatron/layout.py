"""How Megatron-LM lays a tensor out over its ranks: which dimension they divide, how QKV rows are ordered."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

_SPLIT = (
    (re.compile(r".*\b(word_embeddings|word_embeddings_for_head|output_layer)\.weight"), 0),
    (re.compile(r"lm_head\.bias"), 0),
    (re.compile(r".*\.(query_key_value|dense_h_to_4h)\.(weight|bias)"), 0),
    (re.compile(r".*(attention\.dense|\.dense_4h_to_h)\.weight"), 1),
)
_QKV = re.compile(r".*\.query_key_value\.(weight|bias)")
_VOCABULARY = re.compile(r".*\b(word_embeddings|word_embeddings_for_head|output_layer)\.weight|lm_head\.bias")


def split_dim(name: str) -> int | None:
    """The dimension of this tensor that tensor-parallel ranks divide; None: every rank has all of it."""
    return next((dim for pattern, dim in _SPLIT if pattern.fullmatch(name)), None)


def has_vocabulary_rows(name: str) -> bool:
    """Whether dimension 0 of this tensor is the vocabulary, padding included."""
    return _VOCABULARY.fullmatch(name) is not None


def full_shape(name: str, shards: Sequence[Tensor], vocab_size: int) -> tuple[int, ...]:
    """Shape of the tensor that the ranks' parts make, without rows of padding."""
    shape, dim = list(shards[0].shape), split_dim(name)
    if dim is not None:
        shape[dim] = sum(shard.shape[dim] for shard in shards)
    if has_vocabulary_rows(name):
        shape[0] = min(shape[0], vocab_size)
    return tuple(shape)


def join(name: str, shards: Sequence[Tensor], *, version: int, heads: int, vocab_size: int) -> Tensor:
    """The whole tensor of all ranks' parts: QKV rows as [heads, 3, head_dim], rows of padding left out.

    heads: of the whole model. A view of the part where one rank has all of it in this order already; else one
    new tensor, into which the parts are copied where they belong.
    """
    dim = split_dim(name)
    qkv = _QKV.fullmatch(name) is not None and version < 2
    shape = full_shape(name, shards, vocab_size)
    if dim is None or (len(shards) == 1 and not qkv):
        return shards[0][: shape[0]] if has_vocabulary_rows(name) else shards[0]
    full = torch.empty(shape, dtype=shards[0].dtype)
    start = 0
    for shard in shards:
        count = max(0, min(shard.shape[dim], shape[dim] - start))
        place = full.narrow(dim, start, count)
        if qkv:
            # Every rank orders its own heads, so parts are put in order before they are joined.
            mine = heads // len(shards)
            place.unflatten(0, (mine, 3, -1)).copy_(_by_head(shard, mine, version))
        else:
            place.copy_(shard.narrow(dim, 0, count))
        start += count
    return full


def part(name: str, full: Tensor, rank: int, *, tp: int, version: int, heads: int) -> Tensor:
    """What a rank of tp holds of a whole tensor whose QKV rows are [heads, 3, head_dim]; the inverse of join.

    Vocabulary rows are those of the padded table.
    """
    dim = split_dim(name)
    if dim is None:
        return full
    size = full.shape[dim] // tp
    mine = full.narrow(dim, rank * size, size)
    if _QKV.fullmatch(name) is None or version >= 2:
        return mine
    rows = mine.unflatten(0, (heads // tp, 3, -1))  # [heads/tp, 3, head_dim, ...]
    # [3, heads/tp, head_dim, ...] or [heads/tp, head_dim, 3, ...]
    return (rows.transpose(0, 1) if version < 1 else rows.transpose(1, 2)).flatten(0, 2)


def _by_head(shard: Tensor, heads: int, version: int) -> Tensor:
    """A rank's QKV rows as [heads, 3, head_dim, ...], a view."""
    if version < 1:
        return shard.unflatten(0, (3, heads, -1)).transpose(0, 1)
    return shard.unflatten(0, (heads, -1, 3)).transpose(1, 2)

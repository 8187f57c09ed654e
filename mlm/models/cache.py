"""Keys and values of the tokens so far, kept so that each further token is computed alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention of a whole text: q, k, v [batch, heads/tp, seq, head_dim] -> the same shape."""


class KeyValueCache:
    """Room for `rows` texts of up to `capacity` tokens in each layer, of the heads that this tp rank has.

    A text's keys and values stand in its row from column 0 on, so that a prompt is padded on the right: what
    stands there comes later than any real token, which therefore never attends to it, and is overwritten by
    the tokens that follow. No text's result knows of another's length. Holds
    2 * layers * rows * capacity * hidden/tp elements in the dtype of the first keys; made with them.
    """

    def __init__(self, *, layers: int, rows: int, capacity: int):
        self._layers = [_Kept(rows, capacity) for _ in range(layers)]

    def filled(self, rows: Sequence[int]) -> list[LayerCache]:
        """For the forward pass of whole prompts, ids [len(rows), seq]: one a layer, to keep it in."""
        return [_Filling(kept, list(rows)) for kept in self._layers]

    def extended(self, lengths: Sequence[int]) -> list[LayerCache]:
        """For the forward pass of one token a text, ids [len(lengths), 1], in the first rows.

        lengths: tokens that each row holds already.
        """
        columns = _Columns(list(lengths))
        return [_Extending(kept, columns) for kept in self._layers]

    def move(self, source: int, target: int, length: int) -> None:
        """Put the first `length` tokens of a row into another one."""
        for kept in self._layers:
            kept.move(source, target, length)


class LayerCache(ABC):
    """What one layer's attention is given in one forward pass."""

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: Attend) -> Tensor:
        """Keep k and v, and return the attention of q to all that its text has; causal: that of a whole one.

        Shapes: q, k, v [batch, heads/tp, seq, head_dim] -> the same.
        """


class _Kept:
    """One layer's keys and values, [rows, heads/tp, capacity, head_dim] each."""

    def __init__(self, rows: int, capacity: int):
        self.rows, self.capacity = rows, capacity
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def tensors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Both, made at the first call for heads, size, dtype and device of `like`."""
        if self.keys is None or self.values is None:
            _, heads, _, head_dim = like.shape
            # Zeros: what no token has filled is masked, and times zero only a number vanishes.
            self.keys = like.new_zeros(self.rows, heads, self.capacity, head_dim)
            self.values = torch.zeros_like(self.keys)
        return self.keys, self.values

    def move(self, source: int, target: int, length: int) -> None:
        for kept in (self.keys, self.values):
            if kept is not None:
                kept[target, :, :length] = kept[source, :, :length]


class _Filling(LayerCache):
    def __init__(self, kept: _Kept, rows: list[int]):
        self._kept, self._rows = kept, rows

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: Attend) -> Tensor:
        keys, values = self._kept.tensors(k)
        seq = k.shape[2]
        for place, row in enumerate(self._rows):
            keys[row, :, :seq] = k[place]
            values[row, :, :seq] = v[place]
        return causal(q, k, v)


class _Columns:
    """Where a further token of each text goes and what it sees, worked out once for all layers."""

    def __init__(self, lengths: list[int]):
        self.count, self.end = len(lengths), max(lengths) + 1
        self._lengths = None if min(lengths) + 1 == self.end else lengths
        self._last: Tensor | None = None
        self._seen: Tensor | None = None

    def put(self, kept: Tensor, new: Tensor) -> None:
        """Write new [batch, heads/tp, head_dim] behind what each of the first rows of kept has."""
        if self._lengths is None:
            kept[: self.count, :, self.end - 1] = new
            return
        if self._last is None:
            self._last = torch.tensor(self._lengths, device=new.device)  # [batch]
        rows = torch.arange(self.count, device=new.device)
        heads = torch.arange(kept.shape[1], device=new.device)
        kept[rows[:, None], heads, self._last[:, None]] = new

    def seen(self) -> Tensor | None:
        """Which of the first `end` columns belong to each text, [batch, 1, 1, end]; None: all."""
        if self._last is not None and self._seen is None:
            columns = torch.arange(self.end, device=self._last.device)
            self._seen = (columns <= self._last[:, None])[:, None, None]
        return self._seen


class _Extending(LayerCache):
    def __init__(self, kept: _Kept, columns: _Columns):
        self._kept, self._columns = kept, columns

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: Attend) -> Tensor:
        keys, values = self._kept.tensors(k)
        count, end = self._columns.count, self._columns.end
        self._columns.put(keys, k[:, :, 0])
        self._columns.put(values, v[:, :, 0])
        seen = self._columns.seen()
        return F.scaled_dot_product_attention(q, keys[:count, :, :end], values[:count, :, :end], seen)

"""The arithmetic of mlm.models.names.Form: their tensors to ours and back, without losing a bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from mlm.config.schema import ModelConfig
from mlm.models.names import Form

Shape = tuple[int, ...]


class Bijection(Protocol):
    """One Form. A parameter is a matrix [out, in] or a vector [out]; model gives heads and vocabulary."""

    def to_ours(self, theirs: Sequence[Tensor], model: ModelConfig) -> Tensor:
        """Our full tensor of theirs, in the order of Entry.theirs; a view where no element has to move."""

    def to_theirs(self, ours: Tensor, model: ModelConfig) -> list[Tensor]:
        """Their tensors of our full one."""

    def their_shapes(self, ours: Shape, model: ModelConfig) -> list[Shape]:
        """The shapes that theirs must have for ours to have this one."""


class _Plain:
    def to_ours(self, theirs: Sequence[Tensor], model: ModelConfig) -> Tensor:
        return theirs[0]

    def to_theirs(self, ours: Tensor, model: ModelConfig) -> list[Tensor]:
        return [ours]

    def their_shapes(self, ours: Shape, model: ModelConfig) -> list[Shape]:
        return [ours]


class _Transposed:
    """Of what another form gives."""

    def __init__(self, inner: Bijection):
        self.inner = inner

    def to_ours(self, theirs: Sequence[Tensor], model: ModelConfig) -> Tensor:
        return self.inner.to_ours([each.t() for each in theirs], model)

    def to_theirs(self, ours: Tensor, model: ModelConfig) -> list[Tensor]:
        return [each.t() for each in self.inner.to_theirs(ours, model)]

    def their_shapes(self, ours: Shape, model: ModelConfig) -> list[Shape]:
        return [shape[::-1] for shape in self.inner.their_shapes(ours, model)]


class _QkvBlocks(_Plain):
    def to_ours(self, theirs: Sequence[Tensor], model: ModelConfig) -> Tensor:
        rows = theirs[0].unflatten(0, (3, model.num_heads, -1))  # [3, heads, head_dim, ...]
        return rows.transpose(0, 1).flatten(0, 2)  # [heads * 3 * head_dim, ...]

    def to_theirs(self, ours: Tensor, model: ModelConfig) -> list[Tensor]:
        rows = ours.unflatten(0, (model.num_heads, 3, -1))  # [heads, 3, head_dim, ...]
        return [rows.transpose(0, 1).flatten(0, 2)]  # [3 * heads * head_dim, ...]


class _QkvParts:
    def to_ours(self, theirs: Sequence[Tensor], model: ModelConfig) -> Tensor:
        parts = [part.unflatten(0, (model.num_heads, -1)) for part in theirs]  # 3 x [heads, head_dim, ...]
        return torch.stack(parts, 1).flatten(0, 2)  # [heads * 3 * head_dim, ...]

    def to_theirs(self, ours: Tensor, model: ModelConfig) -> list[Tensor]:
        rows = ours.unflatten(0, (model.num_heads, 3, -1))  # [heads, 3, head_dim, ...]
        return [part.flatten(0, 1) for part in rows.unbind(1)]  # 3 x [heads * head_dim, ...]

    def their_shapes(self, ours: Shape, model: ModelConfig) -> list[Shape]:
        return [(ours[0] // 3, *ours[1:])] * 3


class _VocabularyRows:
    def to_ours(self, theirs: Sequence[Tensor], model: ModelConfig) -> Tensor:
        real = theirs[0]
        rows = model.padded_vocab_size or model.vocab_size
        if rows == model.vocab_size:
            return real
        padded = torch.zeros((rows, *real.shape[1:]), dtype=real.dtype)
        padded[: model.vocab_size] = real
        return padded

    def to_theirs(self, ours: Tensor, model: ModelConfig) -> list[Tensor]:
        return [ours[: model.vocab_size]]

    def their_shapes(self, ours: Shape, model: ModelConfig) -> list[Shape]:
        return [(model.vocab_size, *ours[1:])]


FORMS: dict[Form, Bijection] = {
    Form.PLAIN: _Plain(),
    Form.TRANSPOSED: _Transposed(_Plain()),
    Form.QKV_BLOCKS: _QkvBlocks(),
    Form.QKV_BLOCKS_TRANSPOSED: _Transposed(_QkvBlocks()),
    Form.QKV_PARTS: _QkvParts(),
    Form.VOCABULARY_ROWS: _VocabularyRows(),
}

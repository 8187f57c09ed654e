"""Tables of names: what our parameters are called in other programs' files and how their elements lie there.

A table is data. The arithmetic of a Form stands in mlm.convert.forms, matching in mlm.convert.walk. No torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

LAYER = "{i}"
"""Stands in both names of an entry for a layer's number, which is the same here and there."""


class Form(Enum):
    """How their tensor, or tensors, become ours; each is a bijection on the elements that both have."""

    PLAIN = auto()
    """The same tensor."""
    TRANSPOSED = auto()
    """A matrix stored [in, out]; ours are [out, in]."""
    QKV_BLOCKS = auto()
    """Rows [3, heads, head_dim], all of Q first; ours are [heads, 3, head_dim]."""
    QKV_BLOCKS_TRANSPOSED = auto()
    """The same with the matrix stored [in, out], so that its columns are Q, K and V."""
    QKV_PARTS = auto()
    """Q, K and V as three tensors, named in this order, each with rows [heads, head_dim]."""
    VOCABULARY_ROWS = auto()
    """Rows of real tokens; our rows of padding, which are zeros, are left out there and made anew here."""


@dataclass(frozen=True)
class Entry:
    """One parameter of ours and the names of what it is made of, most often one, without their prefix."""

    ours: str
    theirs: tuple[str, ...]
    form: Form = Form.PLAIN

    def of_layer(self, number: int) -> Entry:
        """The entry with the number in place of {i}."""
        theirs = tuple(name.replace(LAYER, str(number)) for name in self.theirs)
        return Entry(self.ours.replace(LAYER, str(number)), theirs, self.form)


@dataclass(frozen=True)
class Table:
    """All names of one model in one format.

    prefixes: what names may begin with in a file or not. renames: endings that older files use, and today's.
    ignored: patterns of whole names that hold nothing learned. copies: names that repeat the tensor of
    another name, which they have to equal; where our model has a parameter of its own for it, they are that.
    """

    entries: tuple[Entry, ...]
    prefixes: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)

    def canonical(self, name: str) -> str | None:
        """The name as entries and copies write it; None when it is to be ignored."""
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        for old, new in self.renames.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        return None if any(re.fullmatch(pattern, name) for pattern in self.ignored) else name

    def of_layers(self, num_layers: int) -> dict[str, Entry]:
        """Our name -> its entry, every layer written out."""
        layer = [entry for entry in self.entries if LAYER in entry.ours]
        first = self.entries.index(layer[0])
        written = [
            *self.entries[:first],
            *(entry.of_layer(number) for number in range(num_layers) for entry in layer),
            *(entry for entry in self.entries[first:] if entry not in layer),
        ]
        return {entry.ours: entry for entry in written}

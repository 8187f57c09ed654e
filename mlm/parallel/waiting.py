"""Which collective this process is in, noted for whoever has to explain why it does not come out again."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

import torch

from mlm.parallel.mesh import Axis


class InCollective:
    """Context of a call that waits for the other ranks of an axis; they may be nested.

    name: the collective, as a person would call it. It costs under a microsecond and nothing else: no
    message, no synchronisation.
    """

    __slots__ = ("_outer", "axis", "name", "number")

    def __init__(self, name: str, axis: Axis):
        self.name, self.axis = name, axis
        self.number = 0
        self._outer: InCollective | None = None

    def __enter__(self) -> None:
        noted = self.axis.name
        # Every rank of an axis meets its collectives in the same order: who has a lower count is missing.
        self.number = position.entered[noted] = position.entered.get(noted, 0) + 1
        position.moves += 1
        self._outer, position.collective = position.collective, self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        position.moves += 1
        # A failure leaves it standing: who explains it wants to know what failed.
        if error is None:
            position.collective = self._outer


class Position:
    """Where this process is among its collectives.

    collective: the innermost it is in, None outside. entered: axis name -> how many so far. moves: grows with
    every entrance and exit: while it stands still, nothing has been got done.
    """

    def __init__(self) -> None:
        self.collective: InCollective | None = None
        self.entered: dict[str, int] = {}
        self.moves = 0


position = Position()
"""Of the one process there is. Written by the thread that trains, read by the one that watches it."""


def in_collective(name: str, axis: Axis) -> AbstractContextManager[None]:
    """InCollective, except where the compiler reads along, which would have to trace it."""
    return nullcontext() if torch.compiler.is_compiling() else InCollective(name, axis)

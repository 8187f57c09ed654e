"""The beginning of a text, for a limit: all ways of measuring it then see the same words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Head:
    """The first `lines` of the `of` lines of a text that are not blank, with the blank ones around them."""

    text: str
    lines: int
    of: int

    @property
    def whole(self) -> bool:
        return self.lines == self.of


def head(text: str, limit: int | None) -> Head:
    """A text up to its limit-th line that is not blank; the text itself without a limit or below it."""
    lines = text.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if limit is None or limit >= len(filled):
        return Head(text, len(filled), len(filled))
    return Head("\n".join([*lines[: filled[limit]], ""]), limit, len(filled))

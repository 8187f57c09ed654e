"""Tokens to text while they come: characters and stop strings that borders between tokens cut in two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlm.data.tokenizers import Tokenizer

_UNKNOWN = "\ufffd"
_INCOMPLETE = 3
"""Most U+FFFD that the beginning of a character can look like: it has up to three bytes of its four."""
_CONTEXT, _LONG = 8, 64
"""Tokens before new ones that are decoded with them, and how many make it worth dropping earlier ones."""


class Continuation:
    """The text that tokens make behind a prompt; called with each, it says whether a stop string has come.

    What is told is certain: no later token changes it, and no stop string begins in it. The pieces told,
    and the rest that `finish` tells, join to `text`. Tokens are decoded behind the last ones of the prompt,
    because some tokenizers write the first of a text differently.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        stop: Sequence[str] = (),
        tell: Callable[[str], None] = lambda piece: None,
    ):
        self._tokenizer, self._stop, self._tell = tokenizer, stop, tell
        self._ids = list(prompt_ids[-_CONTEXT:])
        self._given = len(tokenizer.decode(self._ids))
        self._held = ""
        self._pieces: list[str] = []
        self._has_stopped = False

    def __call__(self, token: int) -> bool:
        self._ids.append(token)
        whole = self._tokenizer.decode(self._ids)
        certain = _without_beginning_of_character(whole)
        new, self._given = certain[self._given :], max(self._given, len(certain))
        if len(self._ids) > _LONG and certain == whole:
            self._ids = self._ids[-_CONTEXT:]
            self._given = len(self._tokenizer.decode(self._ids))
        self._take(new)
        return self._has_stopped

    def finish(self) -> str:
        """Tell what was held back, now that nothing follows, and return the whole text."""
        if not self._has_stopped:
            self._give(self._held + self._tokenizer.decode(self._ids)[self._given :])
            self._held = ""
        return self.text

    @property
    def text(self) -> str:
        """What has been told so far."""
        return "".join(self._pieces)

    def _take(self, new: str) -> None:
        pending = self._held + new
        places = [(pending.find(stop), len(stop)) for stop in self._stop]
        complete = [(at + size, at) for at, size in places if at >= 0]
        if complete:
            # The first to be complete, as if characters came one by one: tokens make no difference.
            self._has_stopped = True
            self._give(pending[: min(complete)[1]])
            return
        keep = max((_overlap(pending, stop) for stop in self._stop), default=0)
        self._held = pending[len(pending) - keep :]
        self._give(pending[: len(pending) - keep])

    def _give(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._tell(piece)


def _without_beginning_of_character(text: str) -> str:
    """The text without what may be the first bytes of a character at its end."""
    cut = len(text)
    while cut > 0 and len(text) - cut < _INCOMPLETE and text[cut - 1] == _UNKNOWN:
        cut -= 1
    return text[:cut]


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of text with which stop begins; fewer than all of stop."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)

"""One kind of line end and no runs of blank lines: the rule of `mlm-data filter --fix-newlines`."""

from __future__ import annotations

import re

RULE = (
    "every line end (CR LF, CR, NEL, U+2028, U+2029) becomes a newline, lines of white space become empty, "
    "runs of empty lines become one, and empty lines at the beginning and end of a document go"
)

# The longest first. Looking for each is ten times as fast as one expression for all, and most are not there.
_OTHER_ENDS = ("\r\n", "\r", "\x85", "\u2028", "\u2029")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n){2,}")
_BLANK_LINE = re.compile(r"\n[^\S\n]+(?=\n)")


def fix_newlines(text: str) -> str:
    """The text by RULE; nothing else changes, not even spaces at either end of a line with words."""
    for other in _OTHER_ENDS:
        text = text.replace(other, "\n")
    text = _BLANK_LINES.sub("\n\n", text)
    text = _BLANK_LINE.sub("\n", text)
    space = len(text) - len(text.lstrip())
    text = text[text.rfind("\n", 0, space) + 1 :]
    end = text.find("\n", len(text.rstrip()))
    return text if end < 0 else text[:end]

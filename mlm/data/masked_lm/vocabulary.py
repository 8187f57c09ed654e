"""What masking has to know of a vocabulary: control tokens, where words begin, what may replace a token."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.data.tokenizers.names import is_control
from mlm.errors import Problem

# Writing without spaces, where a piece is the nearest thing to a word: Thai, kana, Chinese characters.
_SPACELESS = re.compile(
    r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_CONTINUES = "##"
_SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
_SPACE_BYTES = {f"<0x{ord(space):02X}>" for space in " \t\n\r"}
_NEEDED = {"mask": "[MASK]", "cls": "[CLS]", "sep": "[SEP]"}


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary as masking sees it.

    cls, sep, mask, pad: ids; where a vocabulary has no pad, sep stands there, which no token attends to.
    control: ids that are never masked, [UNK] among them. starts_word: ids with which a word begins.
    ordinary: the ids that a random replacement is drawn from. Shapes: [vocab_size], [vocab_size], [ordinary].
    """

    cls: int
    sep: int
    mask: int
    pad: int
    control: NDArray[np.bool_]
    starts_word: NDArray[np.bool_]
    ordinary: NDArray[np.int64]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """Raises BadData as `tokenizer_problem` says."""
        if found := tokenizer_problem(tokenizer.kind, tokenizer.special):
            raise BadData(found.where, found.wrong, found.remedy)
        pieces = [tokenizer.piece(token) for token in range(tokenizer.vocab_size)]
        special = tokenizer.special
        # A gap among the ids of a tokenizer.json has an empty piece.
        control = np.array([is_control(piece) or not piece for piece in pieces])
        control[list(special.values())] = True
        return cls(
            cls=special["cls"],
            sep=special["sep"],
            mask=special["mask"],
            pad=special.get("pad", special["sep"]),
            control=control,
            starts_word=word_starts(pieces),
            ordinary=np.flatnonzero(~control),
        )


def tokenizer_problem(kind: str, special: Mapping[str, int]) -> Problem | None:
    """What a tokenizer lacks for masked language modelling. special: Tokenizer.special."""
    lacking = [name for purpose, name in _NEEDED.items() if purpose not in special]
    if not lacking:
        return None
    return Problem(
        f"tokenizer.kind={kind}",
        f"has no {' and no '.join(lacking)}, and objective=masked_lm puts them into every sample",
        "use tokenizer=wordpiece, or one trained by mlm-data tokenizer train with "
        "--control '[CLS],[SEP],[MASK],[PAD]'",
    )


def word_starts(pieces: Sequence[str]) -> NDArray[np.bool_]:
    """Whether a word begins with each token, from how the vocabulary writes it. Shapes: [vocab_size].

    Where tokens begin with ## and none with a space, WordPiece's way, a word goes on with those of ##.
    Elsewhere a word begins with the space before it, written as it is or as U+2581; in writing without
    spaces every token is a word.
    """
    spaced = [
        piece[:1].isspace() or piece.startswith(_SPACE_MARK) or piece in _SPACE_BYTES for piece in pieces
    ]
    continues = [piece.startswith(_CONTINUES) for piece in pieces]
    if any(continues) and not any(spaced):
        return ~np.array(continues)
    return np.array(spaced) | np.array([bool(_SPACELESS.match(piece)) for piece in pieces])

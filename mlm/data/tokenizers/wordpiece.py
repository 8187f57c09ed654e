"""BERT's WordPiece vocabularies, vocab.txt with one token a line."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers.base import (
    PIECE_CHARACTERS,
    Tokenizer,
    cut_at_line_ends,
    joined,
    joined_offsets,
    sha256,
)
from mlm.data.tokenizers.names import is_control, special_ids

BERT_VOCAB = Path(__file__).parents[1] / "assets" / "bert" / "vocab.txt"
BERT_VOCAB_SIZE = 30_522
UNKNOWN = "[UNK]"


class WordPieceTokenizer(Tokenizer):
    """BERT's basic tokenizer (Unicode categories, one word per Chinese character) and WordPiece; never exact.

    path: a vocab.txt; None: that of BERT's uncased models, which is shipped.
    A vocabulary without a single capital letter is an uncased one: text is lower-cased and loses its accents.
    eod is [SEP], the end of a text in BERT. Brackets are words of their own, so that no text gives [MASK].
    Raises BadData when the file is missing or no such vocabulary.
    """

    kind = "wordpiece"

    def __init__(self, path: str | Path | None = None):
        from tokenizers import Tokenizer as Pipeline
        from tokenizers import decoders, models, normalizers, pre_tokenizers

        self.path = BERT_VOCAB if path is None else Path(path)
        tokens = read_tokens(self.path)
        vocab = {token: number for number, token in enumerate(tokens)}
        self.lowercase = not any(token != token.lower() and not is_control(token) for token in tokens)
        self._pipeline = Pipeline(models.WordPiece(vocab, unk_token=UNKNOWN))
        self._pipeline.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase)
        self._pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._pipeline.decoder = decoders.WordPiece()
        self._tokens = tokens
        self.vocab_size = len(tokens)
        self.special = special_ids(vocab.get)
        self.eod = self.special.get("eod")
        self.fingerprint = wordpiece_fingerprint(self.path)
        self.loss = (
            f"{'letters become small and lose their accents; ' if self.lowercase else ''}"
            "spaces, line ends and control characters are not kept; "
            f"words without pieces become {UNKNOWN}"
        )

    @property
    def name(self) -> str:
        return f"{self.kind} ({'uncased' if self.lowercase else 'cased'}), {self.vocab_size:,} tokens"

    def encode(self, text: str) -> NDArray[np.int32]:
        # Words end at spaces, whatever stands beyond them, so that a cut there changes no token.
        return joined(self._pipeline.encode(piece).ids for piece in cut_at_line_ends(text, PIECE_CHARACTERS))

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """As the base class. Accents that are characters of their own belong to the letter before them, also
        where the tokens have lost them; tokens made of one character have its place in common.
        """
        pieces = cut_at_line_ends(text, PIECE_CHARACTERS)
        encoded = ((len(piece), self._pipeline.encode(piece)) for piece in pieces)
        ids, offsets = joined_offsets((length, each.ids, each.offsets) for length, each in encoded)
        if not text.isascii():
            is_accent = [unicodedata.category(character) == "Mn" for character in text] + [False]
            for place, stop in enumerate(offsets[:, 1].tolist()):
                while is_accent[stop]:
                    stop += 1
                offsets[place, 1] = stop
        return ids, offsets

    def _decode(self, ids: list[int]) -> str:
        return str(self._pipeline.decode(ids, skip_special_tokens=False))

    def piece(self, token: int) -> str:
        return self._tokens[token]

    def describe(self) -> dict[str, Any]:
        path = {} if self.path == BERT_VOCAB else {"path": str(self.path.absolute())}
        return {**super().describe(), **path}


def read_tokens(path: Path) -> list[str]:
    """The tokens of a vocab.txt in the order of their ids. Raises BadData when it is no such file."""
    where, remedy = str(path), "give BERT's vocab.txt, one token a line"
    try:
        # Not splitlines: tokens can be characters that it takes for line ends.
        with open(path, encoding="utf-8") as file:
            tokens = [line.rstrip("\n") for line in file]
    except OSError as error:
        raise BadData(where, f"cannot be read ({error.strerror})", remedy) from None
    except UnicodeDecodeError:
        raise BadData(where, "is not UTF-8", remedy) from None
    if UNKNOWN not in tokens:
        raise BadData(where, f"has no line {UNKNOWN}: it is no WordPiece vocabulary", remedy)
    return tokens


def wordpiece_fingerprint(path: Path) -> str:
    """Fingerprint of the WordPieceTokenizer of a file, without loading it."""
    return sha256(b"wordpiece", path.read_bytes())

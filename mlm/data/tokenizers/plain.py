"""Tokenizers that need no library: one id per character, one id per byte."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers.base import Tokenizer, code_points, sha256

BYTE_VOCAB_SIZE = 257


class CharTokenizer(Tokenizer):
    """One id per character of an alphabet, in the order of the alphabet; no eod.

    Exact on every text of that alphabet; another text is refused, not changed.
    """

    kind, eod, lossless = "char", None, True

    def __init__(self, alphabet: str):
        self.alphabet = alphabet
        self.vocab_size = len(alphabet)
        self.fingerprint = sha256(b"char", alphabet.encode())
        codes = code_points(alphabet)
        self._order = np.argsort(codes)
        self._codes = codes[self._order]

    @classmethod
    def of_text(cls, text: str) -> CharTokenizer:
        """The tokenizer of a text's own characters, sorted."""
        return cls("".join(sorted(set(text))))

    def encode(self, text: str) -> NDArray[np.int32]:
        """Raises BadData naming the first character outside the alphabet and its offset."""
        codes = code_points(text)
        if not len(codes):
            return np.empty(0, dtype=np.int32)
        place = np.minimum(np.searchsorted(self._codes, codes), self.vocab_size - 1)
        unknown = np.flatnonzero(self._codes[place] != codes)
        if len(unknown):
            at = int(unknown[0])
            raise BadData(
                f"character {text[at]!r} at offset {at:,}",
                f"is not among the {self.vocab_size:,} characters of the alphabet",
                "leave it out, or use tokenizer=byte",
            )
        return self._order[place].astype(np.int32)

    def _decode(self, ids: list[int]) -> str:
        return "".join(self.alphabet[i] for i in ids)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "alphabet": self.alphabet}


class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8 as ids 0 to 255, and eod 256; exact on every text."""

    kind, vocab_size, eod, lossless = "byte", BYTE_VOCAB_SIZE, 256, True
    special = MappingProxyType({"eod": 256})

    def __init__(self) -> None:
        self.fingerprint = sha256(b"byte")

    def encode(self, text: str) -> NDArray[np.int32]:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def _decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def piece(self, token: int) -> str:
        return f"<0x{token:02X}>" if token > 126 or token < 33 else chr(token)

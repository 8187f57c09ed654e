"""What every tokenizer promises, and the pieces they share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlm.data.bad_data import BadData

# Characters encoded at once: the libraries hold many times a piece's size in memory while they work.
PIECE_CHARACTERS = 1 << 18


class Tokenizer(ABC):
    """Encodes text to ids in [0, vocab_size) and decodes them.

    eod: the id that ends a document, or None; encode never gives it and decode writes nothing for it.
    special: ids with a meaning of their own, by name: eod, bos, cls, sep, mask, pad, unk, those that exist.
    lossless: whether every text comes back from its ids exactly; where not, loss says what can change.
    fingerprint: sha256 of whatever decides the ids, equal if and only if the ids of every text are.
    """

    kind: str
    vocab_size: int
    eod: int | None
    fingerprint: str
    lossless: bool = False
    loss: str = ""
    special: Mapping[str, int] = MappingProxyType({})

    @property
    def name(self) -> str:
        """For people: the kind and the size of the vocabulary."""
        return f"{self.kind}, {self.vocab_size:,} tokens"

    @abstractmethod
    def encode(self, text: str) -> NDArray[np.int32]:
        """The ids of a text, with no beginning or end added. Shapes: [tokens]."""

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids as encode gives them, and for each the characters [start, stop) of the text it stands for.

        Shapes: [tokens], [tokens, 2]. Raises BadData where the kind of tokenizer does not keep track.
        """
        remedy = "use wordpiece or hf"
        raise BadData(f"a tokenizer of kind {self.kind}", "does not tell where its tokens stand", remedy)

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """The ids of each text by itself, as encode gives them."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """The text of ids that all exist and of which none is eod."""

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; U+FFFD for ids outside the vocabulary and bytes that are no character.

        A model's vocabulary can be larger than its tokenizer's, so ids outside are possible output.
        """
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        if self.eod is not None:
            array = array[array != self.eod]
        outside = np.flatnonzero((array < 0) | (array >= self.vocab_size))
        first, *others = np.split(array, outside)
        return "\ufffd".join([self._decode(first.tolist()), *(self._decode(o[1:].tolist()) for o in others)])

    def piece(self, token: int) -> str:
        """One token for people to read, as its tokenizer writes it."""
        return self._decode([token])

    def describe(self) -> dict[str, Any]:
        """What load_tokenizer needs to rebuild this tokenizer, as JSON values."""
        return {
            "kind": self.kind,
            "vocab_size": self.vocab_size,
            "eod": self.eod,
            "fingerprint": self.fingerprint,
        }

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[dict[str, Any]]]:
        # A copy in another process is rebuilt: the libraries' objects either do not travel or lose settings.
        from mlm.data.tokenizers.load import load_tokenizer

        return load_tokenizer, (self.describe(),)


def code_points(text: str) -> NDArray[np.uint32]:
    """The characters of a text as numbers. Shapes: [characters]."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def cut_at_line_ends(text: str, characters: int) -> Iterator[str]:
    """Pieces of at least `characters` that join to the text, each cut between a non-space and a newline."""
    start = 0
    while len(text) - start > characters:
        at = text.find("\n", start + characters)
        while at != -1 and text[at - 1].isspace():
            at = text.find("\n", at + 1)
        if at == -1:
            break
        yield text[start:at]
        start = at
    yield text[start:]


def joined(pieces: Iterable[Sequence[int]]) -> NDArray[np.int32]:
    """Lists of ids as one array. Shapes: [sum of lengths]."""
    return np.concatenate([np.asarray(piece, dtype=np.int32) for piece in pieces])


def joined_offsets(
    encoded: Iterable[tuple[int, Sequence[int], Sequence[tuple[int, int]]]],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Ids and offsets of pieces as those of the text. encoded: (length, ids, offsets) of each piece."""
    begins, ids, offsets = 0, [], []
    for length, piece_ids, piece_offsets in encoded:
        ids.append(piece_ids)
        offsets.append(np.asarray(piece_offsets, dtype=np.int64).reshape(-1, 2) + begins)
        begins += length
    return joined(ids), np.concatenate(offsets)


def sha256(*parts: bytes) -> str:
    """A fingerprint of parts and of where one ends and the next begins."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()
